"""SpecPC: the scores of the draft model's whole maps, and the tokens chosen by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.core.component import build
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.methods.prompt_compression import specpc
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check

LONG = toys.prompts(1, length=40, seed=7)[0]


def pc(**knobs: Any) -> Any:
    return toys.method(prompt_compression=("specpc", knobs))


@torch.no_grad()
def due(prompt: list[int], ahead: list[int], window: int, layer: int) -> np.ndarray:
    """float [n]: the scores by the draft model's whole maps, read at once, one weight after another."""
    n, probe = len(prompt), Probe(Needs("rows"))
    toys.pair()[1].decoder.forward(Feed.causal_chain(prompt + ahead, 0), None, probe)
    largest = np.zeros(n)
    for rows in [rows for i, rows in probe.rows.items() if i >= layer]:
        for head in rows[0].flatten(0, 1):  # [queries, keys]
            for i in range(window):
                weight = i / (window - 1) if window > 1 else 1.0
                largest = np.maximum(largest, weight * head[n - window + i, :n].numpy())
            for i in range(len(ahead)):
                largest = np.maximum(largest, head[n + i, :n].numpy())
    return largest


def largest_around(scores: np.ndarray, kernel: int) -> np.ndarray:
    left = (kernel - 1) // 2
    return np.array([scores[max(0, j - left) : j - left + kernel].max() for j in range(len(scores))])


def picked(scores: np.ndarray, keep: int, window: int, neighbours: int) -> list[int]:
    """The kept tokens, taken one after another."""
    n = len(scores)
    kept = list(range(n - window, n))
    for token in sorted(range(n), key=lambda j: (-scores[j], j)):
        for step in sorted(range(-((neighbours - 1) // 2), neighbours // 2 + 1), key=lambda x: (abs(x), x)):
            if (at := min(max(token + step, 0), n - 1)) not in kept and len(kept) < keep:
                kept.append(at)
    return sorted(kept)


@pytest.mark.parametrize(
    ("window", "kernel", "neighbours", "layer", "lookahead"),
    [(4, 1, 1, 0, 0), (4, 3, 3, 1, 0), (1, 5, 5, 2, 3), (6, 4, 4, 1, 2)],
)
def test_scores_and_choice_are_those_of_the_whole_maps(
    window: int, kernel: int, neighbours: int, layer: int, lookahead: int
) -> None:
    knobs = dict(
        prompt_budget=14,
        window=window,
        kernel=kernel,
        neighbours=neighbours,
        first_layer=layer,
        lookahead=lookahead,
    )
    trace = toys.decode(pc(**knobs), prompt=LONG, count=4).sink
    cut, ahead = trace.prefill.cut, toys.greedy_text(toys.pair()[1].decoder, LONG, lookahead)
    assert (cut.lookahead or []) == ahead and cut.layers == [*range(layer, 3)]
    scores = largest_around(due(LONG, ahead, window, layer), kernel)
    assert np.allclose(cut.scores, scores, atol=1e-6)
    assert cut.kept.tolist() == picked(cut.scores, 14, window, neighbours) and len(cut.kept) == 14
    assert set(range(len(LONG) - window, len(LONG))) <= set(cut.kept.tolist())
    assert check(trace).ok, str(check(trace))


def test_a_window_in_several_passes_has_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = toys.decode(pc(prompt_budget=14, window=7), prompt=LONG, count=1).sink.prefill
    monkeypatch.setattr(specpc, "WEIGHTS", 2 * 40 * 4 * 2)
    parts = toys.decode(pc(prompt_budget=14, window=7), prompt=LONG, count=1).sink.prefill
    assert np.allclose(whole.cut.scores, parts.cut.scores, atol=1e-7)
    assert [[x.tokens for x in p.passes if x.phase == "score"] for p in (whole, parts)] == [
        [33, 7],
        [33, 2, 2, 2, 1],
    ]


def test_a_needle_that_the_draft_model_attends_to_most_stays_with_its_neighbours() -> None:
    """At any place before the window, with room only for the window and the needle's surroundings."""
    places = set()
    for prompt in toys.prompts(6, length=40, seed=11):
        cut = toys.decode(
            pc(prompt_budget=7, window=4, kernel=1, neighbours=3), prompt=prompt, count=1
        ).sink.prefill.cut
        scores = due(prompt, [], 4, 1)
        needle = int(scores[:35].argmax())
        if scores[needle] > scores[35:].max():
            places.add(needle)
            assert {max(0, needle - 1), needle, needle + 1, *range(36, 40)} <= set(cut.kept.tolist())
            assert len(cut.kept) == 7 and cut.reason[needle] == 1
    assert len(places) > 1, "the test needs needles in several places"


def test_all_kept_is_the_plain_run_and_asks_nobody() -> None:
    plain = toys.decode(prompt=LONG, count=8, level="full")
    session = toys.decode(pc(prompt_budget=len(LONG)), prompt=LONG, count=8, level="full")
    assert session.sink.prefill.cut is None and {x.lane for x in session.sink.prefill.passes} == {"target"}
    assert [x.fields.logits.tolist() for x in session.sink.steps] == [
        x.fields.logits.tolist() for x in plain.sink.steps
    ]


def test_the_target_reads_the_short_prompt_and_the_draft_model_is_let_go() -> None:
    session = toys.decode(pc(prompt_budget=14, window=4), prompt=LONG, count=8)
    prefill = session.sink.prefill
    assert [(x.lane, x.phase, x.tokens) for x in prefill.passes] == [
        ("draft", "score", 36), ("draft", "score", 4), ("target", "prefill", 13)
    ]  # fmt: skip
    assert not session.lanes and prefill.cut.held_bytes > 0
    assert session.end.tokens == toys.decode(prompt=session.sink.effective_prompt, count=8).end.tokens
    drafted = toys.method(
        drafter=("draft_model", {"max_draft_tokens": 3}),
        prompt_compression=("specpc", {"prompt_budget": 14, "window": 4}),
    )
    both = toys.decode(drafted, prompt=LONG, count=8)
    assert (
        both.end.tokens == session.end.tokens
        and both.lanes["draft"].tokens[:14] == session.sink.effective_prompt
    )
    assert sum(step.accepted for step in both.sink.steps) > 0, "the test needs a draft that is right"


def test_a_share_is_never_less_than_the_window() -> None:
    runs = [toys.decode(pc(budget_share=x, window=18), prompt=LONG, count=1) for x in (0.1, 0.5)]
    assert [len(run.sink.prefill.cut.kept) for run in runs] == [18, 20]


def test_what_cannot_be_is_refused() -> None:
    big, small = toys.pair()
    for knobs, models, said in (
        ({"prompt_budget": 8, "window": 9}, {"draft": small}, "choose a window of at most 8"),
        ({"first_layer": 3}, {"draft": small}, "the draft model toy has the layers 0 to 2"),
        ({}, {}, "specpc needs a model in the role 'draft'"),
    ):
        with pytest.raises(MethodError, match=said):
            Session(big, pc(**knobs), LONG, models=models)
    assert build("prompt_compression", "specpc").lanes == ("draft",)
