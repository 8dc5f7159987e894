"""Grammar-aligned decoding: estimates of the grammar's mass fall to it, and texts approach the model's own distribution."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import exp, log
from typing import Any

import pytest
import torch
import toys

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.methods.strategies.shared.prefixes import GrammarPrefixes
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.trace import check
from decodescope.engine.trace.checks.notes import declared_notes
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.engine.trace.records.events import Step

SMALL, NESTED = "[ab]{1,2}c?|[a-c]d", 'start: "a" inner "b" | "c"\ninner: "a" "c"? "b" | "c"'
GRAMMARS = {SMALL: "regex", NESTED: "lark"}
LIMIT = 8


@cache
def flat() -> Model:
    """A toy whose distributions are so flat that all prefixes of a small grammar are drawn soon."""
    return toys.add_tokenizer(toys.model(toys.decoder(seed=2, dtype=torch.float64, sharp=0.8)))


def method(grammar: str, samples: int, heat: float = 1.0) -> Method:
    knobs = {
        "grammar": {"definition": grammar, "dialect": GRAMMARS.get(grammar, "regex")},
        "temperature": {"temperature": heat},
    }
    return Method.from_names(
        {"strategy": "aligned", "sampler": ["grammar", "temperature"]}, {"strategy.samples": samples} | knobs
    )


def session(
    grammar: str = SMALL, samples: int = 256, limit: int = LIMIT, seed: int = 0, heat: float = 1.0
) -> Session:
    return Session(flat(), method(grammar, samples, heat), toys.PROMPT, max_new_tokens=limit, seed=seed)


@cache
@torch.inference_mode()
def law(text: tuple[int, ...], heat: float = 1.0) -> torch.Tensor:
    """float64 [V]: ln p of the next token after a text, computed without a cache."""
    row = flat().decoder.forward(Feed.causal_chain([*toys.PROMPT, *text], 0), None)[0, -1]
    return (row.double() / heat).log_softmax(-1)


@cache
def allowed(grammar: str, limit: int = LIMIT) -> dict[tuple[int, ...], list[int]]:
    """prefix -> the tokens that may follow it, for all prefixes that the grammar allows below the limit, by its own masks."""
    root = method(grammar, 1).sampler.start([], 13, flat().alphabet(13, frozenset({12})))[0]
    waiting: list[tuple[tuple[int, ...], Any]] = [((), root)]
    every = {}
    while waiting:
        text, path = waiting.pop()
        every[text] = path.recogniser.mask(path).nonzero()[:, 0].tolist()
        waiting += [
            ((*text, x), path.with_token(x)) for x in every[text] if x != 12 and len(text) + 1 < limit
        ]
    return every


def words(grammar: str, limit: int = LIMIT, heat: float = 1.0) -> dict[tuple[int, ...], float]:
    """Text -> its probability under the model, for all texts that the grammar allows."""
    every, chances, waiting = allowed(grammar, limit), {}, [((), 0.0)]
    while waiting:
        text, logp = waiting.pop()
        if text not in every:
            chances[text] = exp(logp)
            continue
        waiting += [((*text, x), logp + float(law(text, heat)[x])) for x in every[text]]
    return chances


def masses(grammar: str, limit: int = LIMIT) -> dict[tuple[int, ...], float]:
    """Prefix -> c, the probability that the continuation stays allowed to its end."""
    chances = words(grammar, limit)
    before = {
        text: sum(float(law(text[:i])[x]) for i, x in enumerate(text)) for text in allowed(grammar, limit)
    }
    return {u: sum(p for w, p in chances.items() if w[: len(u)] == u) / exp(before[u]) for u in before}


def known(seen: GrammarPrefixes) -> Iterator[tuple[tuple[int, ...], int]]:
    """All prefixes that a run knows, with their numbers."""
    waiting: list[tuple[tuple[int, ...], int]] = [((), 0)]
    while waiting:
        text, number = waiting.pop()
        yield text, number
        node = seen.every[number]
        waiting += [((*text, int(node.ids[place])), below) for place, below in node.below.items()]


def next_law(seen: GrammarPrefixes) -> dict[tuple[int, ...], float]:
    """Text -> the probability that it is the next text, when all prefixes are known."""
    laws = {
        text: (seen.every[n].ids.tolist(), seen.weighted_log_probs(n).log_softmax(-1).tolist())
        for text, n in known(seen)
    }
    chances, waiting = {}, [((), 0.0)]
    while waiting:
        text, logp = waiting.pop()
        if text not in laws:
            chances[text] = exp(logp)
            continue
        waiting += [((*text, x), logp + q) for x, q in zip(*laws[text], strict=True)]
    return chances


def law_now(seen: GrammarPrefixes, grammar: str) -> dict[tuple[int, ...], float]:
    """The same probabilities at any time: after unknown prefixes only the grammar decides."""
    laws = dict(known(seen))
    chances, waiting = {}, [((), 0.0)]
    every = allowed(grammar)
    while waiting:
        text, logp = waiting.pop()
        if text not in every:
            chances[text] = exp(logp)
            continue
        own = law(text)[every[text]].log_softmax(-1)
        row = seen.weighted_log_probs(laws[text]).log_softmax(-1) if text in laws else own
        waiting += [((*text, x), logp + float(q)) for x, q in zip(every[text], row, strict=True)]
    return chances


def text_of(step: Step) -> dict[str, Any]:
    """The text that a step drew."""
    (detail,) = step.details or ()
    assert isinstance(detail, TallyDetail) and len(detail) == 1
    return detail.row(0)


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_what_is_known_of_the_mass_falls_to_what_trying_all_texts_gives(grammar: str) -> None:
    """c~ of every prefix, after every text, against the sum over all texts; at the prompt it approaches the grammar's mass."""
    run, due = session(grammar), masses(grammar)
    before: dict[tuple[int, ...], float] = {}
    fell = 0
    while len(run.scratch if run.steps else ()) < len(due):
        run.step()
        seen = run.scratch
        now = {text: exp(seen.bounds[number]) for text, number in known(seen)}
        assert all(now[u] >= due[u] * (1 - 1e-12) for u in now)
        assert all(now[u] <= before.get(u, 1.0) * (1 + 1e-12) for u in now)
        fell += sum(now[u] < before.get(u, 1.0) for u in now)
        before = now
    assert fell > 12 and run.steps > 3, "the test needs bounds that fall"
    assert before.keys() == due.keys() and all(abs(before[u] - due[u]) < 1e-12 * due[u] for u in due)
    assert abs(before[()] - sum(words(grammar).values())) < 1e-12


@pytest.mark.parametrize(("grammar", "heat"), [(SMALL, 1.0), (NESTED, 1.0), (SMALL, 2.0)])
def test_once_all_was_seen_the_next_text_has_the_models_own_law_of_allowed_texts(
    grammar: str, heat: float
) -> None:
    run, chances = session(grammar, heat=heat), words(grammar, heat=heat)
    run.step()
    first = law_now(run.scratch, grammar) if heat == 1.0 else {}
    while len(run.scratch) < len(allowed(grammar)):
        run.step()
    total, law = sum(chances.values()), next_law(run.scratch)
    assert law.keys() == chances.keys() and all(abs(law[w] - chances[w] / total) < 1e-12 for w in law)
    assert heat != 1.0 or max(abs(first[w] - chances[w] / total) for w in law) > 0.01, (
        "the test needs a law that was another"
    )


def test_the_distance_to_that_law_ends_at_nothing_and_need_not_fall_on_the_way() -> None:
    chances = words(SMALL)
    total, rose = sum(chances.values()), 0
    for seed in range(3):
        run, last = session(seed=seed), None
        while last is None or last > 1e-12:
            run.step()
            law = law_now(run.scratch, SMALL)
            kl = sum(q * log(q * total / chances[w]) for w, q in law.items())
            rose += last is not None and kl > last + 1e-9
            last = kl
    assert rose > 2, "the test needs a distance that grows"


def test_a_text_that_the_limit_cuts_counts_as_allowed() -> None:
    grammar = "[a-c]{2,9}"
    run = session(grammar, limit=3)
    while run.steps == 0 or len(run.scratch) < len(allowed(grammar, 3)):
        run.step()
    total, law = sum((chances := words(grammar, 3)).values()), next_law(run.scratch)
    assert {len(w) for w in law} == {3} and {w[-1] == 12 for w in law} == {True, False}, "both ended and cut"
    assert all(abs(law[w] - chances[w] / total) < 1e-12 for w in chances)


def test_the_first_text_is_that_of_the_sampler_alone_and_the_last_one_is_emitted() -> None:
    for seed in range(4):
        plain = Method.from_names({"sampler": ["grammar", "temperature"]}, {"grammar": {"definition": SMALL}})
        alone = toys.finish_session(
            Session(flat(), plain, toys.PROMPT, max_new_tokens=LIMIT, seed=seed)
        ).end.tokens
        run = toys.finish_session(session(samples=5, seed=seed))
        texts = [text_of(step) for step in run.sink.steps]
        assert texts[0]["tokens"] == alone and texts[-1]["tokens"] == run.end.tokens and len(texts) == 5
        assert all(x["logp"] == pytest.approx(log(words(SMALL)[tuple(x["tokens"])])) for x in texts)


def test_what_is_known_takes_no_pass_and_the_prompt_is_read_once() -> None:
    run = toys.finish_session(session(samples=40))
    first, *others = run.sink.steps
    assert len(first.passes) == len(text_of(first)["tokens"])
    known = {tuple(text_of(first)["tokens"][:i]) for i in range(LIMIT)}
    idle = 0
    for step in others:
        tokens = text_of(step)["tokens"]
        fresh = {tuple(tokens[:i]) for i in range(len(tokens))} - known
        assert len(step.passes) == len(fresh) == step.notes["read"], "a pass for each prefix that is new"
        if fresh:
            assert step.passes[0].held == len(toys.PROMPT) - 1 and step.passes[0].tokens == 1 + min(
                map(len, fresh)
            )
        known, idle = known | fresh, idle + (not fresh)
    assert idle > 3 and len(run.target.tokens) == len(toys.PROMPT) - 1, "what texts added is gone"
    assert check(run.sink).ok, str(check(run.sink))


def test_a_long_text_of_a_rare_grammar_has_a_bound_below_all_numbers() -> None:
    run = toys.finish_session(session("[a]{200}", samples=2, limit=240))
    notes = run.sink.steps[-1].notes
    assert run.end.tokens == [0] * 200 + [12] and notes["log_mass"] < -400
    assert notes["log_mass"] == pytest.approx(text_of(run.sink.steps[-1])["logp"])


def test_the_notes_tell_the_law_of_the_first_choice_by_the_grammar_and_aligned() -> None:
    run = toys.finish_session(session("ab[c-e]f|ab[cd]g", samples=30))
    notes = [declared_notes(run.header, step)["strategy"] for step in run.sink.steps]
    assert notes[0]["aligned"].keys() == {"2 c", "3 d", "4 e"}, "a and b are the only ones at their places"
    assert all(x["grammar"] == notes[0]["grammar"] for x in notes)
    assert notes[0]["aligned"] != pytest.approx(notes[0]["grammar"]) and sum(
        notes[-1]["aligned"].values()
    ) == pytest.approx(1)
    assert all(a["mass"] >= b["mass"] for a, b in pairwise(notes))


def test_a_branch_goes_on_as_the_run_does() -> None:
    run = session(samples=9)
    for _ in range(4):
        run.step()
    twin = run.branch()
    assert toys.finish_session(twin).tokens == toys.finish_session(run).tokens and check(twin.sink).ok


def columns(detail: TallyDetail, **more: Any) -> TallyDetail:
    return replace(detail, columns={**detail.columns, **more})


def values(detail: TallyDetail, **more: Any) -> TallyDetail:
    return replace(detail, values={**detail.values, **more})


CHANGES = [
    (lambda x: values(x, bound=-0.01), r"its bound on the mass rose from -\d.* to -0\.01 nats"),
    (lambda x: values(x, bound=0.5), r"drawn_texts breaks bound <= 0"),
    (lambda x: values(x, bound=None), r"drawn_texts breaks bound <= 0"),
    (lambda x: values(x, first=1), r"it drew text 1, and 2 is due"),
    (lambda x: columns(x, outcome=["chosen"]), r"row 1 of drawn_texts breaks first \+ k == samples"),
    (lambda x: columns(x, logp=[1.0]), r"row 1 of drawn_texts breaks logp <= 0"),
    (lambda x: columns(x, tokens=[[]]), r"row 1 of drawn_texts breaks count\(tokens\) >= 1"),
    (lambda x: columns(x, tokens=[[99]]), r"holds an id outside the vocabulary"),
    (lambda x: columns(x, tokens=[3]), r"must have a list in each row"),
    (
        lambda x: replace(x, columns={name: [] for name in x.columns}),
        r"rows of drawn_texts come in an order that cannot be",
    ),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_record_that_does_not_follow_is_told(change: Any, said: str) -> None:
    run = toys.finish_session(session(samples=4))
    assert check(run.sink).ok and check(run.sink).counts["drawn texts"] == 4
    run.sink.steps[2].details = [change(run.sink.steps[2].details[0])]
    problems = check(run.sink).problems
    assert any(re.search(said, x) for x in problems), problems


def test_the_last_text_is_the_one_that_is_emitted() -> None:
    run = toys.finish_session(session(samples=2))
    last = run.sink.steps[-1]
    last.details = [columns(last.details[0], outcome=["drawn"])]
    problems = check(run.sink).problems
    assert any("breaks first + k != samples" in x for x in problems)
    assert any("it emitted" in x for x in problems), problems


def test_samplers_that_it_cannot_weigh_are_refused() -> None:
    refused = {
        "temperature": r"^aligned weighs what a grammar allows, and no sampler constrains the text: choose grammar",
        "grammar,top_p": r"^top_p takes out tokens that the grammar allows, .*: leave top_p out, or choose temperature",
        "grammar,greedy": r"^greedy takes out tokens",
    }
    for names, why in refused.items():
        with pytest.raises(MethodError, match=why):
            Session(
                flat(), Method.from_names({"strategy": "aligned", "sampler": names.split(",")}), toys.PROMPT
            )
