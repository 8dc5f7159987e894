"""The figure of a calibration: every point comes from the file, and halves are chosen by the file's own test."""

from __future__ import annotations

from pathlib import Path

import pytest

from decodescope.engine.core import calibration
from decodescope.engine.core.calibration import Calibration, CalibrationPoint, write
from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.risk import hoeffding_bentkus
from decodescope.lab.figures.measured import risk

N, DELTA, EPS = 80, 0.2, 0.1


def point(value: float, wrong: int) -> CalibrationPoint:
    losses = tuple(float(i * 7 % N < wrong) for i in range(N))
    p = hoeffding_bentkus(losses, DELTA)
    return CalibrationPoint(value, wrong / N, p, p <= EPS, losses)


CURVE = tuple(point(value, wrong) for value, wrong in ((1.0, 0), (0.9, 4), (0.8, 6), (0.5, 30)))
METHOD = {"adaptive_depth": {"name": "confidence_exit"}}
MODELS = {"target": {"name": "toy", "fingerprint": "ab"}}
ONE = Calibration(
    name="calm", part="adaptive_depth", knob="threshold", value=0.8, risk="edit", test="hoeffding_bentkus",
    delta=DELTA, eps=EPS, n=N,
    models=MODELS, method=METHOD, curve=CURVE, max_new_tokens=12, seed=0, texts="texts",
)  # fmt: skip


def test_points_are_those_of_the_curve_and_the_chosen_one_is_ringed() -> None:
    assert [x.passed for x in CURVE] == [True, True, True, False]
    points, chosen = risk.figure(ONE).data
    assert list(points.y) == [0, 0.05, 0.075, 0.375] and len({*points.marker.color[:3]}) == 1
    assert points.marker.color[3] != points.marker.color[0]
    assert (list(chosen.x), list(chosen.y)) == ([2], [0.075])
    layout = risk.figure(ONE).layout
    assert list(layout.xaxis.ticktext) == ["1", "0.9", "0.8", "0.5"] and layout.shapes[0].y0 == DELTA
    assert list(risk.table(ONE)["chosen"]) == [False, False, True, False]


def test_halves_choose_by_their_own_texts_and_the_others_are_held_out() -> None:
    made = risk.half_split_table(ONE, count=40)
    assert len(made) == 40 and {*made["value"].dropna()} <= {1.0, 0.9, 0.8}
    by_value = {x.value: sum(x.losses) / N for x in CURVE}
    for row in made.dropna().itertuples():
        assert (row.risk + row.held_out) / 2 == pytest.approx(by_value[row.value]), (
            "two halves make the whole"
        )
    assert made.equals(risk.half_split_table(ONE, count=40)) and not made.equals(
        risk.half_split_table(ONE, count=40, seed=1)
    )


def test_a_name_and_a_path_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "default_folder", lambda: tmp_path)
    write(ONE, tmp_path / "calm.json")
    assert (
        risk.calibration_from("calm")
        == risk.calibration_from(tmp_path / "calm.json")
        == risk.calibration_from(ONE)
        == ONE
    )
    with pytest.raises(ParamError, match="There is no calibration"):
        risk.figure("other")
