"""Selective Context: scores are the scorer's own losses, and by them units are removed, those with the least first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import toys
from toylab import Words

from decodescope.engine import MethodError, Session
from decodescope.engine.decoding.bases.prompt_compression import UnreadPrompt
from decodescope.engine.methods.prompt_compression.shared.units import PromptText
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.engine.trace.file.trace import Trace
from decodescope.engine.trace.records.prompt_cut import LEFT, STAYS, reasons_under_budget

TEXTS = [" Who", " ran", ".", " the", " cat", " of", ",", " Bob", "\n", "?", " sat", "<|user|>", "<|end|>"]
USER, END = 11, 12
LONG = [
    USER,
    8,
    0,
    1,
    9,
    *[7, 1, 5, 3, 4, 6, 10, 3, 4, 2, 7, 10, 10, 2, 4, 1, 5, 7, 2, 7, 7, 6, 1, 2] * 2,
    0,
    10,
    9,
    END,
]


WORDS = Words(TEXTS)
WORDS.marks, WORDS.front = frozenset({USER, END}), [END]  # type: ignore[attr-defined] # attributes of a tokenizer


def run(prompt: list[int] | None = None, known: bool = True, **knobs: Any) -> Trace:
    """The trace of one token after the compressed prompt."""
    big, small = toys.pair()
    if known:
        big, small = (replace(x, tokenizer=WORDS) for x in (big, small))  # type: ignore[arg-type] # a substitute tokenizer
    made = toys.method(prompt_compression=("selective_context", knobs))
    session = Session(
        big, made, prompt or LONG, models={"draft": small} if "draft" in made.lanes else {}, max_new_tokens=2
    )
    return toys.finish_session(session).sink  # type: ignore[return-value] # set by the call


@torch.no_grad()
def losses(which: int, text: list[int]) -> np.ndarray:
    """float [T - 1]: the loss of every token but the first, by one dense pass."""
    laws = toys.pair()[which].decoder.forward(Feed.causal_chain(text, 0), None)[0].log_softmax(-1)
    return np.array([-float(laws[i, token]) for i, token in enumerate(text[1:])])


def test_sentences_phrases_and_what_asks() -> None:
    text = PromptText(
        UnreadPrompt(LONG[:29] + LONG[-4:], lambda *_: 0, lambda _: 0, None, TEXTS.__getitem__, WORDS.marks)
    )  # type: ignore[arg-type]

    def parts(unit: Any) -> list[str]:
        starts = text.unit_starts(unit)
        return ["".join(text.pieces[a:b]) for a, b in zip(starts, [*starts[1:], text.n], strict=True)]

    assert parts("sentence") == [
        "", "\n", " Who ran?", " Bob ran of the cat, sat the cat.", " Bob sat sat.", " cat ran of Bob.", " Bob Bob, ran.",
        " Who sat?", "",
    ]  # fmt: skip
    assert parts("phrase")[3:7] == [" Bob ran", " of the cat,", " sat", " the cat."]
    stays = text.protected_mask("both")
    assert "".join(x for x, y in zip(text.pieces, stays, strict=True) if y) == "\n Who ran? Who sat?"
    assert (
        text.protected_mask("start").sum() == 6
        and text.protected_mask("end").sum() == 6
        and text.protected_mask("none").sum() == 3
    )


@pytest.mark.parametrize(("scorer", "which"), [("target", 0), ("draft", 1)])
def test_scores_are_the_scorers_own_losses(scorer: str, which: int) -> None:
    whole = run(scorer_context="prompt", scorer=scorer, unit="token").prefill.cut
    assert np.allclose(whole.scores, losses(which, [END, *LONG]), atol=1e-5)
    trace = run(scorer_context="sentence", scorer=scorer)
    starts = PromptText(
        UnreadPrompt(LONG, lambda *_: 0, lambda _: 0, None, TEXTS.__getitem__, WORDS.marks)
    ).unit_starts("sentence")  # type: ignore[arg-type]
    due = [losses(which, [END, *LONG[a:b]]) for a, b in zip(starts, [*starts[1:], len(LONG)], strict=True)]
    assert len(due) > 8 and np.allclose(trace.prefill.cut.scores, np.concatenate(due), atol=1e-5)
    assert {(x.lane, x.logits) for x in trace.prefill.passes if x.phase == "score"} == {
        (scorer, len(x)) for x in due
    }


@pytest.mark.parametrize("unit", ["token", "phrase", "sentence"])
@pytest.mark.parametrize("by", ["mean", "sum"])
def test_a_larger_ratio_drops_a_superset_and_its_share_to_a_unit(unit: str, by: str) -> None:
    before: set[int] = set()
    sizes = []
    for ratio in (0.1, 0.3, 0.5, 0.8, 1.0):
        trace = run(reduce_ratio=ratio, unit=unit, unit_score=by)
        cut = trace.prefill.cut
        left = set(range(len(LONG))) - set(cut.kept.tolist())
        starts = [*range(len(LONG))] if cut.units is None else cut.units.tolist()
        longest = max(b - a for a, b in zip(starts, [*starts[1:], len(LONG)], strict=True))
        free = int((cut.reason != STAYS).sum())
        assert before <= left and ratio * free - longest < len(left) <= ratio * free and check(trace).ok, str(
            check(trace)
        )
        for a, b in zip(starts, [*starts[1:], len(LONG)], strict=True):
            assert len({int(x) for x in cut.reason[a:b] if x != STAYS}) <= 1, "a unit goes as a whole"
        before, sizes = left, [*sizes, len(left)]
    assert sizes[-1] == free > sizes[1] > sizes[0], "the test needs cuts that differ"


def test_the_units_that_leave_are_those_worth_least() -> None:
    cut = run(reduce_ratio=0.5, unit="phrase").prefill.cut
    for k, (a, b) in enumerate(zip(cut.units, [*cut.units[1:], len(LONG)], strict=True)):
        assert cut.worth[k] == pytest.approx(float(np.mean(cut.scores[a:b])))
    gone = [x for k, x in enumerate(cut.worth) if cut.reason[cut.units[k]] == LEFT]
    kept = [x for k, x in enumerate(cut.worth) if cut.reason[cut.units[k]] not in (LEFT, STAYS)]
    assert gone and kept and max(gone) <= min(kept)


def test_ratio_0_is_the_plain_run_and_asks_nobody() -> None:
    session = toys.decode(
        toys.method(prompt_compression=("selective_context", {"reduce_ratio": 0.0})), prompt=LONG, count=8
    )
    assert session.sink.prefill.cut is None and {x.phase for x in session.sink.prefill.passes} == {"prefill"}
    assert session.end.tokens == toys.decode(prompt=LONG, count=8).end.tokens


def test_a_smaller_budget_is_the_same_cut_made_from_the_record() -> None:
    """The budget slider relies on this: scores are those of the record, whatever was kept of the prompt."""
    one, other = run(reduce_ratio=0.2).prefill.cut, run(reduce_ratio=0.6).prefill.cut
    assert np.array_equal(reasons_under_budget(one, other.budget), other.reason) and not np.array_equal(
        one.reason, other.reason
    )


def test_without_words_the_units_are_tokens_and_the_last_stays() -> None:
    cut = run(known=False, reduce_ratio=0.5).prefill.cut
    # the last one, and the first one, which has no prediction
    assert cut.unit == "token" and cut.units is None and cut.reason.tolist().count(STAYS) == 2
    assert len(cut.kept) == len(LONG) - (len(LONG) - 2) // 2 and cut.kept[0] == 0


def test_a_draft_model_is_asked_for_only_where_it_reads() -> None:
    big = toys.pair()[0]
    with pytest.raises(MethodError, match="needs a model in the role 'draft'"):
        Session(big, toys.method(prompt_compression="selective_context"), LONG)
    assert (
        Session(
            big, toys.method(prompt_compression=("selective_context", {"scorer": "target"})), LONG
        ).method.lanes
        == ()
    )
