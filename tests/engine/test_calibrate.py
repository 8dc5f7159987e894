"""Calibration: p-values, the walk along a grid, its guarantee, its files, and what uses them."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toys
from leaving import DEEP

from decodescope.engine import Method
from decodescope.engine.bench.calibration.calibrate import (
    CalibrationError,
    CalibrationSettings,
    CalibrationText,
    calibrate,
)
from decodescope.engine.core import calibration
from decodescope.engine.core.calibration import Calibration, load_calibration, write
from decodescope.engine.core.component import build
from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.risk import binomial, fixed_sequence_test, hoeffding, hoeffding_bentkus
from decodescope.engine.session.method import MethodError
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.session.session import Session
from decodescope.engine.trace import check

TEXTS = [CalibrationText(tuple(x)) for x in toys.prompts(24, 8)]
GRID = (1.01, 0.99, 0.95, 0.9, 0.1)
EXIT = Method.from_names({"adaptive_depth": "confidence_exit"}, {"adaptive_depth": {"min_layers": 1}})


@pytest.fixture(scope="module")
def found() -> Calibration:
    return calibrate(
        DEEP,
        EXIT,
        "adaptive_depth.threshold",
        GRID,
        TEXTS,
        CalibrationSettings(0.6, 0.2, max_new_tokens=12),
        name="toy",
        whole=True,
    )


def test_p_values_worked_by_hand() -> None:
    assert hoeffding([0.0] * 8 + [0.5, 0.5], 0.3) == pytest.approx(math.exp(-2 * 10 * 0.2**2)), "mean 0.1"
    assert binomial([0, 0, 1, 0, 0], 0.5) == pytest.approx(6 / 32), "no one or a single one of five coins"
    assert binomial([1] * 5, 0.5) == 1.0 and binomial([0] * 4, 0.1) == pytest.approx(0.9**4)
    # mean 0.1 of ten, delta 0.5: h = 0.1 log 0.2 + 0.9 log 1.8 = 0.36806; the sum of 1 is one draw of ten: (1 + 10) / 1024
    tight, bentkus = math.exp(-10 * (0.1 * math.log(0.2) + 0.9 * math.log(1.8))), math.e * 11 / 1024
    assert (
        hoeffding_bentkus([0.1] * 10, 0.5)
        == pytest.approx(min(tight, bentkus))
        == pytest.approx(0.0252, abs=1e-4)
    )
    assert hoeffding_bentkus([0.6] * 10, 0.5) == 1.0
    assert [fixed_sequence_test(x, 0.05) for x in ([0.01, 0.05, 0.2, 0.0], [0.06, 0.0], [])] == [2, 0, 0]


@pytest.mark.parametrize("test", [hoeffding, binomial, hoeffding_bentkus])
def test_a_risk_at_the_bound_passes_no_more_often_than_eps(test) -> None:
    """The probability is exact, over all counts of ones that 40 draws at the bound may have."""
    n, delta = 40, 0.2
    law = [math.comb(n, k) * delta**k * (1 - delta) ** (n - k) for k in range(n + 1)]
    ps = [test([1.0] * k + [0.0] * (n - k), delta) for k in range(n + 1)]
    assert ps == sorted(ps), "more losses never speak for less risk"
    for eps in (0.01, 0.05, 0.2):
        assert sum(chance for chance, p in zip(law, ps, strict=True) if p <= eps) <= eps


def test_the_risk_holds_in_all_but_eps_of_200_splits_of_known_scores() -> None:
    """Texts are numbers u from 0 to 1. The loss at the value v is 1 where u < v, so its expectation is v itself."""
    chance, delta, eps, n = random.Random(5), 0.2, 0.1, 60
    grid = [i / 100 for i in range(1, 60)]
    broken = guessed = chosen = 0.0
    for _ in range(200):
        us = [chance.random() for _ in range(n)]
        losses = [[float(u < v) for u in us] for v in grid]
        held = fixed_sequence_test((binomial(x, delta) for x in losses), eps)
        value = grid[held - 1] if held else 0.0
        chosen += value / 200
        broken += value > delta
        guessed += max(v for v, x in zip(grid, losses, strict=True) if sum(x) / n <= delta) > delta
    assert broken <= eps * 200 and chosen > 0.08, "the bound holds, and something is saved"
    assert guessed > 2 * eps * 200, "the test needs splits on which the mean alone is wrong"


@pytest.mark.nightly
def test_texts_run_free_and_the_last_value_that_holds_the_risk_is_chosen(found: Calibration) -> None:
    assert [x.value for x in found.curve] == list(GRID) and found.curve[0].risk == 0.0, (
        "a bound that is never reached"
    )
    assert found.value == [x for x in found.curve if x.passed][-1].value == found.chosen_point.value
    assert GRID[-1] < found.value < GRID[0] and found.curve[-1].risk > 0.6, (
        "the test needs values on both sides"
    )
    method = Method.from_names(
        {"adaptive_depth": "confidence_exit"}, {"adaptive_depth": {"min_layers": 1, "threshold": 0.1}}
    )
    for text, loss in zip(TEXTS[:4], found.curve[-1].losses, strict=False):
        said, due = (toys.finish_session(_session(x, text)).tokens[8:] for x in (method, Method()))
        assert loss == _edits(said, due) / max(len(said), len(due))
    short = calibrate(
        DEEP, EXIT, "adaptive_depth.threshold", GRID, TEXTS, CalibrationSettings(0.6, 0.2, max_new_tokens=12)
    )
    assert short.value == found.value and len(short.curve) < len(GRID) and not short.curve[-1].passed


def _session(method: Method, text: CalibrationText) -> Session:
    return Session(DEEP, method, text.prompt, max_new_tokens=12, level="summary")


def _edits(a: list[int], b: list[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row, above = [i], row
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (x != y)))
    return row[-1]


def test_a_router_is_calibrated_too_and_the_further_model_is_part_of_it() -> None:
    target, draft = toys.pair()
    method = Method.from_names(
        {"strategy": "switch", "router": "entropy"}, {"router": {"min_turn_tokens": 1, "window": 1}}
    )
    aim = CalibrationSettings(0.5, 0.2, max_new_tokens=8)
    one = calibrate(target, method, "router.tau", (-1.0, 0.5, 4.0), TEXTS, aim, models={"draft": draft})
    assert [x.passed for x in one.curve] == [True, True, False] and one.curve[0].risk == 0.0 < one.curve[
        1
    ].risk
    assert set(one.models) == {"target", "draft"}
    other = replace(draft, fingerprint="another")
    chosen = Method.from_names(
        {"strategy": "switch", "router": "entropy"},
        {"router": {"min_turn_tokens": 1, "window": 1, "tau": one}},
    )
    Session(target, chosen, TEXTS[0].prompt, models={"draft": draft})
    with pytest.raises(MethodError, match="as the draft model"):
        Session(target, chosen, TEXTS[0].prompt, models={"draft": other})


def test_another_risk_and_what_cannot_be_calibrated() -> None:
    aim = CalibrationSettings(0.5, 0.2, "differs", 6)
    one = calibrate(DEEP, EXIT, "adaptive_depth.threshold", GRID[:2], TEXTS[:12], aim)
    assert one.test == "binomial" and {y for x in one.curve for y in x.losses} <= {0.0, 1.0}
    with pytest.raises(CalibrationError, match="safe end"):
        calibrate(
            DEEP,
            EXIT,
            "adaptive_depth.threshold",
            GRID,
            TEXTS[:3],
            CalibrationSettings(0.1, 0.05, max_new_tokens=4),
        )
    wrong = (
        ("depth.thresold", GRID, TEXTS, aim, "Did you mean 'adaptive_depth.threshold'"),
        ("adaptive_depth.threshold", (), TEXTS, aim, "grid"),
        ("adaptive_depth.threshold", GRID, [], aim, "texts"),
        ("adaptive_depth.threshold", GRID, TEXTS, replace(aim, delta=1.0), "between 0 and 1"),
        ("adaptive_depth.threshold", GRID, TEXTS, replace(aim, risk="task"), "references"),
        ("adaptive_depth.threshold", (7.0,), TEXTS, aim, "must lie in"),
        ("adaptive_depth.min_layers", (3.0, 2.5), TEXTS, aim, "a whole number"),
    )
    for knob, grid, texts, aimed, word in wrong:
        with pytest.raises((MethodError, ParamError), match=word):
            calibrate(DEEP, EXIT, knob, grid, texts, aimed)


def test_a_name_stands_for_the_number_and_the_header_holds_both(
    found: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "default_folder", lambda: tmp_path)
    write(found, tmp_path / "toy.json")
    assert load_calibration(tmp_path / "toy.json") == found
    method = Method.from_names(
        {"adaptive_depth": "confidence_exit"},
        {"adaptive_depth": {"min_layers": "1", "threshold": "calibrated:toy"}},
    )
    header = _session(method, TEXTS[0]).header
    assert header.method["adaptive_depth"]["threshold"] == found.value
    assert (
        header.parts["adaptive_depth"]["calibrated"] == {"threshold": found.header_record()}
        and found.header_record()["name"] == "toy"
    )
    assert Method.from_record(header.method).adaptive_depth == method.adaptive_depth
    other = toys.model(toys.decoder(toys.toy_spec(n_layers=6), 4))
    other.fingerprint = "another"
    with pytest.raises(
        MethodError,
        match=r"was found on .* as the target model, and here is .*another.*calibrate on this one",
    ):
        Session(other, method, TEXTS[0].prompt)
    changed = Method.from_names(
        {"adaptive_depth": "confidence_exit"},
        {"adaptive_depth": {"min_layers": 2, "threshold": "calibrated:toy"}},
    )
    with pytest.raises(MethodError, match=r"another method, with adaptive_depth.min_layers = 1"):
        _session(changed, TEXTS[0])
    with pytest.raises(MethodError, match=r"with adaptive_depth = confidence_exit: set that"):
        _session(
            Method.from_names(
                {"adaptive_depth": "entropy_exit"}, {"adaptive_depth": {"threshold": found, "min_layers": 1}}
            ),
            TEXTS[0],
        )
    with pytest.raises(ParamError, match=r"was found for adaptive_depth.threshold"):
        Method.from_names(
            {"adaptive_depth": "confidence_exit"},
            {"adaptive_depth": {"threshold_decay": found, "min_layers": 1}},
        )
    with pytest.raises(ParamError, match=r"its text is checked"):
        Method.from_names(
            {"drafter": "early_exit"}, {"drafter": {"criterion": "confidence_exit threshold=calibrated:toy"}}
        )


@pytest.mark.nightly
def test_a_fork_keeps_the_name_while_method_and_models_are_the_same(found: Calibration) -> None:
    method = Method.from_names(
        {"adaptive_depth": "confidence_exit"}, {"adaptive_depth": {"min_layers": 1, "threshold": found}}
    )
    run = toys.finish_session(_session(method, TEXTS[0]))
    told = {"threshold": found.header_record()}

    def fork(of: Session, step: int = 3, **more: Any) -> Session:
        return toys.finish_session(Fork(DEEP, of.header, list(of.sink.steps), step, **more))

    same = fork(run)
    assert (
        same.header.parts["adaptive_depth"]["calibrated"] == told
        and check(same.sink).ok
        and same.tokens == run.tokens
    )
    assert fork(run, max_new_tokens=14).header.parts["adaptive_depth"]["calibrated"] == told, (
        "length and seed are the reader's"
    )
    changes = (
        Method.from_names(
            {"adaptive_depth": "confidence_exit"}, {"adaptive_depth": {"min_layers": 1, "threshold": 0.5}}
        ),
        Method.from_names(
            {"adaptive_depth": "confidence_exit"},
            {"adaptive_depth": {"min_layers": 2, "threshold": found.value}},
        ),
        Method.from_names({"adaptive_depth": "entropy_exit"}, {"adaptive_depth": {"min_layers": 1}}),
        replace(Method.from_record(run.header.method), policy=build("policy", "window", {"window": 8})),
    )
    for change in changes:
        other = fork(run, method=change)
        assert not any("calibrated" in part for part in other.header.parts.values())
        assert "calibrated" not in fork(other, 5).header.parts["adaptive_depth"]
        assert "calibrated" not in fork(other, 2).header.parts["adaptive_depth"], (
            "what a header no longer says is not made up"
        )
    assert (
        fork(run, method=Method.from_record(run.header.method)).header.parts["adaptive_depth"]["calibrated"]
        == told
    )
    plain = toys.finish_session(_session(Method(), TEXTS[0]))
    assert fork(plain, method=method).header.parts["adaptive_depth"]["calibrated"] == told, (
        "a fork may begin with a calibrated value"
    )
    wrong = Method.from_names(
        {"adaptive_depth": "confidence_exit"}, {"adaptive_depth": {"min_layers": 2, "threshold": found}}
    )
    with pytest.raises(MethodError, match="another method"):
        Fork(DEEP, run.header, list(run.sink.steps), 3, method=wrong)


def test_a_file_that_is_not_what_it_was_is_refused(
    found: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "default_folder", lambda: tmp_path)
    whole = found.record()
    wrong = ("", "[]", "{" * 9000, json.dumps({**whole, "calibration": 2}), json.dumps({**whole, "value": 0.05}),
             json.dumps({**whole, "rule": "0" * 16}), json.dumps({**whole, "n": 3}), json.dumps({**whole, "extra": 1}),
             json.dumps({**whole, "curve": [{}]}), json.dumps({**whole, "models": {"target": 3}}))  # fmt: skip
    for i, text in enumerate(wrong):
        (tmp_path / "odd.json").write_text(text, encoding="utf-8")
        with pytest.raises(ParamError, match="no calibration"):
            print(i, build("adaptive_depth", "confidence_exit", {"threshold": "calibrated:odd"}))
    for name in ("missing", "../toy", "/etc/passwd", ""):
        with pytest.raises(ParamError):
            build("adaptive_depth", "confidence_exit", {"threshold": f"calibrated:{name}"})
