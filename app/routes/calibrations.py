"""Calibrations: the routes that show the risk of calibrated knobs, from the files in the user's folder.

GET /ds/calibrations        the existing ones, a line each
GET /ds/calibrations/NAME   one of them: its curve, and the choices of its test on halves of the texts; or its exits

A name, never a path: no file elsewhere is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response

from decodescope.engine.core import calibration
from decodescope.engine.core.calibration import (
    ENDING,
    NAME,
    CalibratedValue,
    Calibration,
    ConformalThresholds,
)
from decodescope.engine.core.params import ParamError

from .hardware import json_response

MOST = 200  # files that are listed
GONE = "There is no calibration {} on this machine: it was made elsewhere, or is gone. decodescope calibrate makes it."
ODD = "The file of the calibration {} is not what decodescope calibrate writes, or of another version: make it again."


def add(api: FastAPI, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""

    @api.get("/ds/calibrations")
    def listed() -> Response:
        names = sorted(x.name.removesuffix(ENDING) for x in calibration.default_folder().glob(f"*{ENDING}"))
        return json_response({"rows": [_summary_row(name) for name in names if NAME.fullmatch(name)][:MOST]})

    @api.get("/ds/calibrations/{name}")
    def single(name: str) -> Response:
        if not NAME.fullmatch(name):
            return refused(404, GONE.format(repr(name[:60])))
        if not (calibration.default_folder() / f"{name}{ENDING}").is_file():
            return refused(404, GONE.format(name))
        try:
            one = calibration.load_named(name)
            if isinstance(one, ConformalThresholds):
                return json_response(_exits_record(name, one))
            assert isinstance(one, Calibration)
            return json_response(_full_record(name, one))
        except (ParamError, ValueError, ArithmeticError, LookupError):
            return refused(422, ODD.format(name))


def _summary_row(name: str) -> dict[str, Any]:
    """A calibration in the list; `trouble`: why it cannot be shown."""
    try:
        return _summary(name, calibration.load_named(name))
    except ParamError:
        return {"name": name, "trouble": ODD.format(name)}


def _summary(name: str, one: CalibratedValue) -> dict[str, Any]:
    said = {"part": one.part, "knob": one.knob, "value": one.value, "promise": one.promise}
    return (
        said
        | one.header_record()
        | {"name": name, "models": {role: x["name"] for role, x in one.models.items()}}
    )


def _exits_record(name: str, one: ConformalThresholds) -> dict[str, Any]:
    """Thresholds by exit: for each its threshold, and the shares that agreed and that exit there."""
    return _summary(name, one) | {
        "exits": [*zip(one.value, one.agreed, one.leave, strict=True)],
        "wrong": one.wrong,
    }


def _full_record(name: str, one: Calibration) -> dict[str, Any]:
    """A calibration with its curve, from the safe end on, and how often halves of the texts chose each value.
    Raises the errors that a file with invalid numbers may cause."""
    from decodescope.lab.figures.measured.risk import WORDS, half_split_table

    drawn = half_split_table(one)
    held = drawn["held_out"].dropna().to_numpy()
    chosen = [int((drawn["value"] == x.value).to_numpy().sum()) for x in one.curve]
    # `none`: halves on which even the safe end failed; `above`: halves where the other half lost more than delta
    summed = {"count": len(drawn), "none": int(drawn["value"].isna().to_numpy().sum()), "chosen": chosen}
    if len(held):
        summed |= {"held": float(held.mean()), "above": int((held > one.delta).sum())}
    return _summary(name, one) | {
        "word": WORDS.get(one.risk, one.risk),
        "test": one.test,
        "max_new_tokens": one.max_new_tokens,
        "curve": [[x.value, x.risk, x.p, x.passed] for x in one.curve],
        "halves": summed,
    }
