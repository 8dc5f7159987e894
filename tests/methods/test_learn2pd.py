"""Learn2PD: what the filter reads and commits, what an oracle in its place writes, and places that are really not fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import toys
from filling import filled, fills

from decodescope.engine import MethodError, Session
from decodescope.engine.decoding.bases.unmasking import SelectorChoice
from decodescope.engine.decoding.shared.canvas import Canvas
from decodescope.engine.model.heads.learn2pd import ParallelFilter
from decodescope.engine.session.load import Model
from decodescope.engine.trace.details.canvas_fill import filter_bars, find_cut

START = len(toys.PROMPT)


def decoded(
    knobs: dict[str, Any],
    model: Model | None = None,
    count: int = 22,
    stop: tuple[int, ...] = (),
    **strategy: Any,
):
    selector = ("low_confidence", knobs) if "filter_threshold" not in knobs else ("learn2pd", knobs)
    method = toys.method(strategy=("masked", {"block": 22, **strategy}), unmasking=selector)
    return filled(
        Session(
            model or toys.bidirectional_target(), method, toys.PROMPT, max_new_tokens=count, stop_tokens=stop
        )
    )


def rows(session: Session) -> list[int]:
    return [one.tokens for step in session.sink.steps for one in step.passes]


# ---- the filter


def test_the_filter_reads_all_confidences_of_the_block_and_ones_where_nothing_is_open() -> None:
    session = decoded({"filter_threshold": 0.5, "steps": 8, "cut_after_end": False}, block=9)
    head, both = toys.bidirectional_target().decoder.heads["learn2pd"], set()
    for fill in fills(session):
        first, behind = fill.block
        c = np.ones(-(-(behind - first) // 6) * 6)
        c[fill.open - first] = fill.confidence
        inner, outer = (x.double() for x in (head.inner.weight, head.outer.weight))
        hidden = (torch.from_numpy(c).view(-1, 6) @ inner.T + head.inner.bias).relu()
        due = (hidden @ outer.T + head.outer.bias).sigmoid().flatten().numpy()[fill.open - first]
        assert fill.columns["final"] == pytest.approx(due, abs=1e-5)
        m = behind - first
        best = {*np.argsort(-fill.confidence, kind="stable")[: min(m, 8) and (m // min(m, 8))].tolist()}
        assert {*np.flatnonzero(fill.columns["final"] > 0.5).tolist()} <= {
            *np.searchsorted(fill.open, fill.places).tolist()
        }
        assert best <= {*np.searchsorted(fill.open, fill.places).tolist()}
        both |= {*fill.rules}
    assert both == {"final", "scheduled"}, "the test needs places of both rules"


def test_a_filter_that_is_never_sure_is_the_schedule() -> None:
    for steps in (3, 8, 22):
        one, plain = (
            decoded({"filter_threshold": 1.0, "steps": steps, "cut_after_end": False}),
            decoded({"steps": steps}),
        )
        assert one.end.tokens == plain.end.tokens
        assert [fill.places for fill in fills(one)] == [fill.places for fill in fills(plain)]


def test_published_size_of_the_filter() -> None:
    assert sum(x.numel() for x in ParallelFilter(96, 32, 32).parameters()) == 2112


# ---- an oracle in its place


@torch.inference_mode()
def oracle(reference: list[int], model: Model, count: int) -> tuple[list[int], int]:
    """The text and its number of passes, if exactly the candidates that equal the reference's tokens are committed.

    A pass without such a candidate commits the reference's own token at the surest place.
    """
    method = toys.method(strategy=("masked", {"block": count}))
    session = Session(model, method, toys.PROMPT, max_new_tokens=count, stop_tokens=())
    session.start()
    canvas: Canvas = session.scratch
    passes = 0
    while not canvas.is_full:
        view = canvas.view_for_selector(session, *canvas.read(session))
        right = view.candidate == np.array([reference[p - START] for p in view.places])
        if not right.any():
            at = int(view.confidence.argmax())
            view.candidate[at], right[at] = reference[view.places[at] - START], True
        canvas.commit(
            view, SelectorChoice(0, ["final"] * len(right), filter_bars(right.astype(np.float32), 0.5))
        )
        passes += 1
    return canvas.text.tokens, passes


@pytest.mark.parametrize("seed", [toys.LIVELY, 5, 8])
def test_an_oracle_filter_reproduces_the_reference_in_fewer_passes(seed: int) -> None:
    spec = toys.bidirectional_target().spec
    model = toys.model(toys.decoder(spec, seed, torch.float64))
    reference = decoded({"steps": 22}, model).end.tokens
    text, passes = oracle(reference, model, 22)
    assert text == reference and passes < 22


# ---- the cut


def test_where_the_text_is_cut() -> None:
    place, candidate = np.arange(10, 16, dtype=np.int32), np.array([1, 7, 3, 7, 7, 2], np.int32)
    confidence, never = np.array([0.9, 0.2, 0.5, 0.6, 0.3, 0.1], np.float32), np.full(6, 2, np.float32)
    assert find_cut(place, candidate, confidence, never, {7}) == 14, "the most confident end"
    sure = never.copy()
    sure[[0, 4]] = 0
    assert find_cut(place, candidate, confidence, sure, {7}) == 15, (
        "the first end that is final, though less confident"
    )
    assert find_cut(place, candidate, confidence, never, {7, 1}) == 11
    assert find_cut(place, candidate, confidence, never, {5}) is None


@pytest.mark.parametrize("cache", ["none", "prefix"])
@pytest.mark.parametrize("block", [22, 8])
def test_what_stands_behind_a_predicted_end_is_not_fed_any_more(cache: str, block: int) -> None:
    cuts = 0
    for stop in range(12):
        session = decoded({"filter_threshold": 0.6, "steps": 8}, stop=(stop,), cache=cache, block=block)
        start, end = START, START + 22
        for fill, fed in zip(fills(session), rows(session), strict=True):
            if fill.start != start:
                start, end = (
                    fill.start,
                    START + 22,
                )  # the last place got another token: another canvas continues the text
            assert fill.start + fill.length == end and fill.block[1] <= end
            assert fed == (end if fill.stale == 0 else end - fill.block[0])
            if fill.cut is not None:
                assert stop == fill.candidate[fill.open == fill.cut - 1]
                cuts += fill.cut < end
                end = fill.cut
        assert session.end.tokens[-1] == stop or len(session.end.tokens) == 22
    assert cuts > 3, "the test needs texts that are cut"


def test_entries_of_places_that_may_be_dropped_are_not_kept() -> None:
    with pytest.raises(
        MethodError, match=r"^learn2pd, as set, drops places whose entries the cache dual keeps: choose"
    ):
        decoded({"filter_threshold": 0.6, "steps": 8}, cache="dual")
    assert (
        len(decoded({"filter_threshold": 0.6, "steps": 8, "cut_after_end": False}, cache="dual").end.tokens)
        == 22
    )
