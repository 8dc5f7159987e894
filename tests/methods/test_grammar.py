"""A canvas under a grammar: every canvas can still become an allowed text, the result is one, and each veto is derived."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import toys
from filling import filled, fills
from lark import Lark
from toylab import Words

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.values.grammar import SHIPPED

COUNT, START = 16, len(toys.PROMPT)
NESTED = 'start: "1" [start ("0" start)*] "2" | "3"'
SELECTORS: list[tuple[str, dict[str, Any]]] = [
    ("low_confidence", {"steps": 4}), ("random", {"steps": 4}), ("threshold", {"tau": 0.3}), ("threshold", {"factor": 2.0}),
    ("local_leap", {"tau": 0.6, "relaxed_tau": 0.3}), ("explore", {"tau": 0.8, "min_sure_places": 4, "candidates": 3}),
]  # fmt: skip
WARM = ("temperature", {"temperature": 1.0})


def masked(selector: tuple[str, dict[str, Any]], sampler: Any = "greedy", **strategy: Any) -> Method:
    return toys.method(strategy=("masked", strategy), unmasking=selector, sampler=sampler)


def decoded(method: Method, count: int = COUNT, **more: Any) -> Session:
    return filled(
        Session(
            toys.bidirectional_target(),
            method,
            toys.PROMPT,
            max_new_tokens=count,
            **{"stop_tokens": [7], **more},
        )
    )


def parses(text: str, tokens: list[int]) -> bool:
    """True if Lark parses the tokens, by their numbers, up to the one that ends the text."""
    words = tokens[: tokens.index(7)] if 7 in tokens else tokens
    Lark(text, parser="earley").parse("".join(map(str, words)))
    return True


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda x: x[0])
@pytest.mark.parametrize("sampler", ["greedy", WARM])
def test_what_is_written_parses_and_every_canvas_has_a_witness(
    selector: tuple[str, dict[str, Any]], sampler: Any
) -> None:
    refused = {False: 0, True: 0}
    for seed, cache in enumerate(("none", "prefix", "dual")):
        session = decoded(masked(selector, sampler, block=8, cache=cache, grammar=NESTED), seed=seed)
        assert parses(NESTED, session.end.tokens)
        settled: dict[int, int] = {}
        for fill in fills(session):
            settled |= dict(zip(fill.places, fill.tokens, strict=True))
            assert fill.places and fill.vetoes is not None and fill.witness is not None
            assert parses(NESTED, fill.witness)
            for place, token in settled.items():
                i = place - START
                assert i > len(fill.witness) or [*fill.witness, 7][i] == token, (
                    "the witness is what the canvas can become"
                )
            for veto in fill.vetoes:
                refused[veto.together] += 1
                assert (veto.place in fill.places) <= (not veto.together) and veto.token not in [
                    t for p, t in zip(fill.places, fill.tokens, strict=True) if p == veto.place
                ]
    assert refused[False] > 0, "the test needs tokens that are refused"


def test_tokens_that_do_not_go_together_leave_a_place_open() -> None:
    session = decoded(masked(("low_confidence", {"steps": 1}), block=16, grammar=NESTED))
    together = [x for fill in fills(session) for x in fill.vetoes if x.together]
    assert together and len(fills(session)) > 1, "one pass would do, if all of it went together"
    assert all(fill.places for fill in fills(session))


def test_a_text_that_is_one_of_the_grammar_anyway_stays_what_it_is() -> None:
    free = decoded(masked(("low_confidence", {"steps": 4}), block=8)).end.tokens
    anything = "start: (" + " | ".join(f'"{x}"' for x in range(12)) + ")*"
    bound = decoded(masked(("low_confidence", {"steps": 4}), block=8, grammar=anything))
    assert bound.end.tokens == free and not [x for fill in fills(bound) for x in fill.vetoes]


def test_the_shipped_grammars_are_written_by_a_model_with_a_tokenizer() -> None:
    words = ["(", ")", " (", "[", "]", "3", "+", " Ada", "Ben", "x", "1", "5"]
    for name in SHIPPED:
        target = replace(toys.bidirectional_target(), tokenizer=Words(dict(enumerate(words))))  # type: ignore[arg-type]
        method = masked(("threshold", {"tau": 0.3}), block=8, grammar=name)
        session = Session(target, method, toys.PROMPT, max_new_tokens=12, stop_tokens=[9])
        session.sink = Trace()
        for _ in session.stream():
            pass
        assert check(session.sink).ok
        text = "".join(words[x] for x in session.end.tokens if x != 9)
        assert Lark(SHIPPED[name], parser="earley").parse(text)


CHANGES = [
    (
        "vetoes",
        lambda x: [*x, type(x[0])(x[0].place, 3)],
        r"refuses token \d+ at \d+, with which there is a text",
    ),
    ("vetoes", lambda x: [], r"and \[\d.*\] are due|commits .* but count, bars"),
    ("vetoes", lambda x: None, r"lacks what its grammar refused"),
    ("witness", lambda x: [*x, 3], r"is no text of the grammar"),
    ("witness", lambda x: x[:-1], r"is no text of the grammar"),
    ("terminals", lambda x: None, r"does not say which tokens"),
    ("terminals", lambda x: {"a": [1]}, r"its terminals are \['a'\]"),
]


@pytest.mark.parametrize(("name", "change", "said"), CHANGES)
def test_a_veto_that_does_not_follow_is_told(name: str, change: Any, said: str) -> None:
    session = decoded(
        masked(("low_confidence", {"steps": 1}), block=16, grammar='start: "1" start "2" | "3"')
    )
    fill = fills(session)[0]
    assert any(x.together for x in fill.vetoes) and any(not x.together for x in fill.vetoes)
    setattr(fill, name, change(getattr(fill, name)))
    problems = check(session.sink).problems
    assert any(re.search(said, x) for x in problems), problems


def test_a_candidate_that_leaves_no_text_is_told() -> None:
    session = decoded(masked(("low_confidence", {"steps": 4}), block=16, grammar=NESTED))
    fill = next(f for f in fills(session) if len(f.places) < len(f.open))
    at = next(i for i, p in enumerate(fill.open) if p not in fill.places)
    fill.candidate = fill.candidate.copy()
    fill.candidate[at] = 11
    assert any("its candidate 11 at" in x for x in check(session.sink).problems)


def test_what_cannot_be_obeyed_is_refused() -> None:
    with pytest.raises(MethodError, match=r"^masked\.grammar: The grammar does not say what a is"):
        decoded(masked(("random", {}), grammar="start: a"))
    with pytest.raises(
        MethodError, match=r"^mask_predict masks places again, and a grammar holds for what stays"
    ):
        decoded(masked(("mask_predict", {}), grammar=NESTED))
    with pytest.raises(EngineFault, match=r"^No text of the grammar fits into 16 tokens of toy"):
        decoded(masked(("random", {}), grammar='start: "x"'))
    with pytest.raises(EngineFault, match=r"^No text of the grammar fits into 2 tokens"):
        decoded(masked(("random", {}), grammar='start: "1" "1" "1"'), count=2)


def test_a_branch_goes_on_under_the_grammar() -> None:
    session = Session(
        toys.bidirectional_target(),
        masked(("random", {"steps": 6}), WARM, block=8, grammar=NESTED),
        toys.PROMPT,
        max_new_tokens=COUNT,
    )
    session.step()
    twin = session.branch()
    for one in (session, twin):
        for _ in one.stream():
            pass
    assert twin.tokens == session.tokens
