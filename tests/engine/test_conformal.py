"""Conformal exits: each procedure is what its authors describe, and the guarantees hold on held-out splits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toys
from leaving import DEEP

from decodescope.engine import Method
from decodescope.engine.bench.calibration.calibrate import CalibrationText
from decodescope.engine.bench.calibration.conformal_exits import (
    NEVER,
    PROCEDURES,
    Agrees,
    Scores,
    choose_exits,
    exit_thresholds,
)
from decodescope.engine.bench.calibration.scores import calibrate_exits, exit_scores
from decodescope.engine.core import calibration
from decodescope.engine.core.component import build
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.method import MethodError
from decodescope.engine.session.session import Session

RULE = Method.from_names({"adaptive_depth": "confidence_exit"}, {"adaptive_depth": {"min_layers": 1}})


def table(count: int, seed: int, layers: int = 4) -> tuple[Scores, Agrees]:
    """Predictions whose deeper exits are right more often; all are more confident than accurate, and some scores are equal."""
    g = np.random.default_rng(seed)
    hard = g.random((count, 1))
    agrees = g.random((count, layers)) > hard * np.linspace(0.9, 0.1, layers)
    scores = 1 - (1 - agrees * 0.3) * hard * g.random((count, layers)) * np.linspace(0.5, 0.2, layers)
    return np.round(scores, 3), agrees


def by_hand(how: str, x: Scores, scores: Scores, agrees: Agrees, eps: float) -> int:
    """One prediction, computed as the procedures are worded; equal scores count as above."""
    worst = [max(row[~same]) for row, same in zip(scores, agrees, strict=True) if not all(same)]
    ranked = sorted([*worst, NEVER])
    quantile = ranked[int(np.ceil((len(ranked) - 1) * (1 - eps) - 1e-12))]
    for layer, mine in enumerate(x):
        wrong = scores[~agrees[:, layer], layer]
        says = {
            "naive": mine >= 1 - eps,
            "static": agrees[:, layer].mean() >= 1 - eps,
            "independent": (sum(wrong >= mine) + 1) / (len(wrong) + 1) < eps / len(x),
            "shared": mine > quantile,
        }
        if says[how]:
            return layer
    return len(x)


@pytest.mark.parametrize("how", PROCEDURES)
def test_a_prediction_leaves_where_the_procedure_says(how) -> None:
    scores, agrees = table(120, 1)
    xs, _ = table(60, 2)
    for eps in (0.05, 0.2, 0.4):
        mine = choose_exits(how, xs, scores, agrees, eps)
        assert mine.tolist() == [by_hand(how, x, scores, agrees, eps) for x in xs]
    assert len(set(mine.tolist())) > 1 or how == "static", "the test needs exits at several depths"


def test_equal_scores_are_drawn_and_never_leave_later_than_counted_whole() -> None:
    scores, agrees = table(300, 3)
    xs = np.round(table(200, 4)[0], 1)
    scores = np.round(scores, 1)
    drawn = choose_exits("independent", xs, scores, agrees, 0.4, np.random.default_rng(0))
    counted = choose_exits("independent", xs, scores, agrees, 0.4)
    assert (drawn <= counted).all() and (drawn < counted).any()


def test_what_is_promised_holds_on_200_held_out_splits_and_what_is_not_breaks() -> None:
    """For the two procedures that read the table, the guarantee is for the mean over the splits."""
    eps, wrong = 0.1, dict.fromkeys(PROCEDURES, 0.0)
    saved = dict.fromkeys(PROCEDURES, 0.0)
    for split in range(200):
        scores, agrees = table(400, 1000 + split)
        xs, right = scores[200:], agrees[200:]
        for how in PROCEDURES:
            at = choose_exits(how, xs, scores[:200], agrees[:200], eps)
            early = at < 4
            wrong[how] += float((early & ~right[np.arange(200), np.minimum(at, 3)]).mean()) / 200
            saved[how] += float((4 - at).mean()) / 200
    assert wrong["shared"] <= eps and wrong["independent"] <= eps
    assert saved["shared"] > 0.05 and saved["independent"] > 0.0, "the test needs exits"
    assert wrong["naive"] > 2 * eps


def test_without_a_fault_in_the_table_nothing_is_known() -> None:
    scores, agrees = table(50, 5)
    agrees[:] = True
    assert (
        set(exit_thresholds("shared", scores, agrees, 0.1))
        == set(exit_thresholds("independent", scores, agrees, 0.1))
        == {NEVER}
    )
    assert exit_thresholds("static", scores, agrees, 0.1) == (0.0,) * 4
    with pytest.raises(ValueError, match="one table"):
        exit_thresholds("shared", scores[:0], agrees[:0], 0.1)


def test_scores_are_those_of_the_tests_of_whole_passes_and_their_thresholds_leave_there() -> None:
    texts = [CalibrationText(tuple(x)) for x in toys.prompts(12, 8)]
    scores, agrees = exit_scores(DEEP, RULE, texts, 10)
    assert scores.shape == agrees.shape == (120, 5) and 0.05 < agrees.mean() < 0.95
    plain = Session(DEEP, Method(), texts[0].prompt, max_new_tokens=10)
    plain_tokens = [x for step in plain.stream() for x in step.emitted]
    feed = list(texts[0].prompt) + plain_tokens[:1]
    assert bool(agrees[1, 2]) == (_best(feed, 3) == plain_tokens[1])
    one = calibrate_exits(DEEP, RULE, texts, 0.5, "shared", 10)
    at = one.value
    assert len(at) == 5 and len(set(at)) == 1 and 0 < at[0] <= 1.01
    exits = choose_exits("shared", scores, scores, agrees, 0.5)
    assert one.leave == tuple((exits == i).mean() for i in range(5)) and 0 < sum(one.leave) < 1
    differ = [i < 5 and not row[i] for i, row in zip(exits, agrees, strict=True)]
    assert (
        one.wrong == sum(differ) / 120
        and one.agreed == tuple(agrees.mean(0))
        and (one.n, one.tokens) == (12, 120)
    )
    chosen = Method.from_names(
        {"adaptive_depth": "confidence_exit"}, {"adaptive_depth": {"min_layers": 1, "thresholds": one}}
    )
    step = next(iter(Session(DEEP, chosen, texts[0].prompt, max_new_tokens=1).stream()))
    assert step.exits is not None
    assert step.exits[0].depth == 1 + int(choose_exits("shared", scores[:1], scores, agrees, 0.5)[0])
    drawn = Method.from_names({"adaptive_depth": "confidence_exit", "sampler": "temperature"})
    drafted = Method.from_names({"adaptive_depth": "confidence_exit", "drafter": "prompt_lookup"})
    relaxed = Method.from_names(
        {"adaptive_depth": "confidence_exit"},
        {"adaptive_depth": {"threshold_decay": 16.0, "decay_horizon": 1}},
    )
    none = [(x, "no thresholds") for x in (Method(), Method.of("patience"), Method.of("entropy_exit"))]
    for method, why in (*none, (drawn, "greedy"), (drafted, "drafts: leave it out"), (relaxed, "decay at 0")):
        with pytest.raises(MethodError, match=why):
            exit_scores(DEEP, method, texts)
    for given, eps in ((texts, 1.0), ([], 0.1)):
        with pytest.raises(MethodError, match="need texts, and a chance"):
            calibrate_exits(DEEP, RULE, given, eps)


def test_thresholds_are_kept_under_a_name_and_stand_for_their_own_knob_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "default_folder", lambda: tmp_path)
    texts = [CalibrationText(tuple(x)) for x in toys.prompts(4, 8)]
    one = calibrate_exits(DEEP, RULE, texts, 0.5, "independent", 4, name="cats")
    calibration.write(one, tmp_path / "cats.json")
    assert calibration.load_calibration(tmp_path / "cats.json") == one
    method = Method.from_names(
        {"adaptive_depth": "confidence_exit"},
        {"adaptive_depth": {"min_layers": "1", "thresholds": "calibrated:cats"}},
    )
    header = Session(DEEP, method, texts[0].prompt, max_new_tokens=2).header
    assert (
        header.parts["adaptive_depth"]["calibrated"] == {"thresholds": one.header_record()}
        and one.header_record()["how"] == "independent"
    )
    assert Method.from_record(header.method).adaptive_depth.thresholds == one.value
    with pytest.raises(
        ParamError,
        match=r"adaptive_depth.threshold = calibrated:cats was found for adaptive_depth.thresholds: set that",
    ):
        Method.from_names(
            {"adaptive_depth": "confidence_exit"}, {"adaptive_depth": {"threshold": "calibrated:cats"}}
        )
    with pytest.raises(MethodError, match=r"another method, with adaptive_depth.min_layers = 1"):
        Session(
            DEEP,
            replace(method, adaptive_depth=build("adaptive_depth", "confidence_exit", {"thresholds": one})),
            texts[0].prompt,
        )
    with pytest.raises(MethodError, match=r"another method, with adaptive_depth = confidence_exit"):
        Session(
            DEEP,
            Method.from_names({"adaptive_depth": "entropy_exit"}, {"adaptive_depth": {"thresholds": one}}),
            texts[0].prompt,
        )
    whole = one.record()
    for odd in (
        {"value": []},
        {"value": 0.5},
        {"agreed": [1.0]},
        {"tokens": "many"},
        {"leave": ["x"] * 5},
        {"how": 3},
    ):
        (tmp_path / "odd.json").write_text(json.dumps({**whole, **odd}), encoding="utf-8")
        with pytest.raises(ParamError, match="no calibration"):
            calibration.load_calibration(tmp_path / "odd.json")


def _best(tokens: list[int], layer: int) -> int:
    """The best token after `tokens` in front of `layer`."""
    with torch.inference_mode():
        lane = Lane("target", DEEP.decoder, build("policy", "keep_all"))
        lane.read(tokens[:-1])
        x = lane.decoder.states_before(Feed.causal_chain(tokens[-1:], len(tokens) - 1), lane.cache, layer)
        return int(lane.decoder.unembed(lane.decoder.apply_norm(x))[0, 0].argmax())
