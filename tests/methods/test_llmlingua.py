"""LLMLingua: paragraphs by their perplexity, then each segment's tokens, scored after the kept tokens before them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import toys
from toylab import Words

from decodescope.engine import Session
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.engine.trace.records.events import Prefill
from decodescope.engine.trace.records.prompt_cut import OUT, STAYS

BREAK, END = 11, 12
LONG = [*toys.prompts(1, length=60, seed=4)[0]]
PARAGRAPHS = [BREAK if i % 10 == 9 else x % 11 for i, x in enumerate(LONG)]


WORDS = Words([*"abcdefghijk", "\n\n", "<|end|>"])
WORDS.marks, WORDS.front = frozenset({END}), [END]  # type: ignore[attr-defined] # attributes of a tokenizer


def run(prompt: list[int], context: str = "llmlingua", known: bool = False, **knobs: Any) -> Prefill:
    big, small = toys.pair()
    if known:
        big, small = (replace(x, tokenizer=WORDS) for x in (big, small))  # type: ignore[arg-type] # a substitute tokenizer
    session = Session(
        big,
        toys.method(prompt_compression=(context, knobs)),
        prompt,
        models={"draft": small},
        max_new_tokens=2,
    )
    trace = toys.finish_session(session).sink
    assert check(trace).ok, str(check(trace))  # type: ignore[arg-type] # a trace in memory
    return trace.prefill  # type: ignore[union-attr, no-any-return] # set by the call


@torch.no_grad()
def loss(text: list[int]) -> float:
    """The loss of the last token, by a dense pass of the draft model over the whole text."""
    laws = toys.pair()[1].decoder.forward(Feed.causal_chain(text, 0), None)[0].log_softmax(-1)
    return -float(laws[-2, text[-1]])


@pytest.mark.parametrize(("segment", "rate"), [(16, 0.5), (8, 0.3), (25, 0.8)])
def test_each_segment_is_judged_behind_the_compressed_ones_and_keeps_its_share(
    segment: int, rate: float
) -> None:
    cut = run(LONG, segment=segment, keep_rate=rate, drop_paragraphs=False).cut
    kept: list[int] = []
    for first in range(0, 60, segment):
        at = [*range(first, min(60, first + segment))]
        for i in at if first else at[1:]:  # the first token has no prediction
            before = [LONG[j] for j in kept] + LONG[first:i]
            assert cut.scores[i] == pytest.approx(loss([*before, LONG[i]]), abs=1e-4)
        chosen = [i for i in at if i in cut.kept]
        free = [i for i in at if cut.reason[i] != STAYS]
        assert abs(len([i for i in chosen if i in free]) - rate * len(free)) <= 1
        gone = [cut.scores[i] for i in free if i not in chosen]
        assert gone and min(cut.scores[i] for i in chosen if i in free) >= max(gone)
        kept += chosen
    assert cut.parts.tolist() == [*range(0, 60, segment)] and len(cut.kept) == cut.budget


def test_one_segment_without_the_coarse_stage_is_selective_context_by_tokens() -> None:
    ours = run(LONG, segment=100, keep_rate=0.4, drop_paragraphs=False)
    other = run(LONG, "selective_context", reduce_ratio=0.6, unit="token", scorer_context="prompt").cut
    assert ours.cut.kept.tolist() == other.kept.tolist() and np.allclose(
        ours.cut.scores, other.scores, atol=1e-6
    )
    several = run(LONG, segment=12, keep_rate=0.4, drop_paragraphs=False).cut
    assert several.kept.tolist() != other.kept.tolist(), "the test needs segments that matter"


def test_what_went_is_forgotten_before_the_next_segment_is_read() -> None:
    looked = [
        x for x in run(LONG, segment=20, keep_rate=0.5, drop_paragraphs=False).passes if x.phase == "score"
    ]
    assert [x.lane for x in looked] == ["draft"] * 3 and [x.logits for x in looked] == [19, 20, 20]
    assert looked[1].held < 20 and looked[2].held < 30, (
        "a segment's entries stay only up to the first token that went"
    )


def test_paragraphs_stay_by_their_perplexity_until_the_slack_is_used() -> None:
    cut = run(
        PARAGRAPHS, known=True, keep_rate=0.3, paragraph_budget=1.5, keep_question="none", segment=100
    ).cut
    due = cut.budget
    mean = [
        np.mean([loss([END, *PARAGRAPHS[a : i + 1]]) for i in range(a, a + 10)]) for a in range(0, 60, 10)
    ]
    left, out = 1.5 * due - 10, set()  # the last paragraph contains the prompt's last token
    for k in sorted(range(5), key=lambda k: -mean[k]):
        out |= set(range(10 * k, 10 * k + 10)) if left <= 0 else set()
        left -= 10
    assert 10 <= len(out) <= 40 and {int(i) for i in np.flatnonzero(cut.reason == OUT)} == out
    assert len(cut.kept) == due and not out & set(cut.kept.tolist())


def test_all_kept_asks_nobody() -> None:
    prefill = run(LONG, keep_rate=1.0)
    assert prefill.cut is None and {x.phase for x in prefill.passes} == {"prefill"}
