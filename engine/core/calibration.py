"""Calibrated knob values: each was chosen for a risk. `calibrated:NAME` means the value in the file of this name."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .files import data_folder
from .params import ParamError

MARK = "calibrated:"
NAME = re.compile(r"[\w-]{1,60}")
ENDING = ".json"
VERSION = 1
BYTES = 16 << 20  # of a file
AGAIN = "make it again with decodescope calibrate"


@dataclass(frozen=True)
class CalibrationPoint:
    """One tried value, with its mean loss over the texts, its p-value and the loss of each text, 0 to 1.

    It also says whether the test let the walk go on. Values after the first failure were not tested: their p only shows the
    curve.
    """

    value: float
    risk: float
    p: float
    passed: bool
    losses: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class CalibratedValue:
    """A knob's value that was chosen on texts, and what it was chosen for.

    part, knob: "adaptive_depth" and "threshold";  value: a number, or the items of a list
    eps: the chance that the promise does not hold;  n: texts
    models: role -> {"name", "fingerprint"};  method: all other knobs of all parts, as a header records them
    max_new_tokens, seed, texts: how the texts were decoded; texts is a hash of the prompts
    """

    name: str
    part: str
    knob: str
    value: float | tuple[float, ...]
    eps: float
    n: int
    models: dict[str, dict[str, str]]
    method: dict[str, dict[str, Any]]
    max_new_tokens: int
    seed: int
    texts: str

    @property
    def rule(self) -> str:
        """Fingerprint of the method but for the knob, 16 hex digits."""
        return hashlib.sha256(json.dumps(self.method, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def as_text(self) -> str:
        """The value as people read it."""
        return ",".join(f"{x:g}" for x in (self.value if isinstance(self.value, tuple) else (self.value,)))

    @property
    def promise(self) -> str:
        """What is promised, in a few words."""
        raise NotImplementedError

    def header_record(self) -> dict[str, Any]:
        """What a trace's header says of it."""
        return {"name": self.name, "eps": self.eps, "n": self.n}

    def record(self) -> dict[str, Any]:
        """As plain data: what a file holds."""
        return {"calibration": VERSION, **asdict(self), "rule": self.rule}

    def knob_conflict(self, kind: str, knob: str) -> str | None:
        """Why it is not a value for this knob; None if it is."""
        if (kind, knob) == (self.part, self.knob):
            return None
        return f"{kind}.{knob} = {MARK}{self.name} was found for {self.part}.{self.knob}: set that, or give a value."

    def method_conflict(
        self, kind: str, knob: str, method: Mapping[str, Mapping[str, Any]], models: Mapping[str, Any]
    ) -> str | None:
        """Why the value says nothing about this knob of this method, by its record, on these models; None if it does.

        The models are given by role and have a `name` and a `fingerprint`.
        """
        what = f"{kind}.{knob} = {MARK}{self.name}"
        for role, known in self.models.items():
            here = models.get(role)
            if here is None or here.fingerprint != known["fingerprint"]:
                other = "none" if here is None else f"{here.name} ({here.fingerprint})"
                return (
                    f"{what} was found on {known['name']} ({known['fingerprint']}) as the {role} model, and here is {other}: "
                    "calibrate on this one, or give a number."
                )
        if differs := _first_difference(self.method, method_without_knob(method, kind, knob)):
            return f"{what} was found for another method, with {differs}: set that too, or calibrate this method."
        return None


@dataclass(frozen=True, kw_only=True)
class Calibration(CalibratedValue):
    """A number with a guarantee on the risk.

    With a chance of at least 1 - eps over the texts that were drawn, the expected loss of a further text is at most delta.

    risk: the kind of loss;  test: the p-value;  curve: from the safe end of the grid
    """

    value: float
    risk: str
    test: str
    delta: float
    curve: tuple[CalibrationPoint, ...]

    @property
    def chosen_point(self) -> CalibrationPoint:
        """The point of the value."""
        return next(x for x in self.curve if x.passed and x.value == self.value)

    @property
    def promise(self) -> str:
        """The risk and its bound."""
        return f"risk ({self.risk}) at most {self.delta:g}, eps {self.eps:g}, {self.n} texts"

    def header_record(self) -> dict[str, Any]:
        """The risk too."""
        return {**super().header_record(), "risk": self.risk, "delta": self.delta}


@dataclass(frozen=True, kw_only=True)
class ConformalThresholds(CalibratedValue):
    """Thresholds by exit with a guarantee, for a further token that the whole model writes, with its keys and values whole.

    Under `how` = "independent" and "shared", the exit at which that token leaves gives another token with a chance of at most
    eps.

    how: the procedure;  tokens: rows of its table
    agreed: by exit, the share of them on which its best token was the whole model's
    leave: by exit, the share of them that leave there, the rest never;  wrong: the share that leave and disagree
    """

    value: tuple[float, ...]
    how: str
    tokens: int
    agreed: tuple[float, ...]
    leave: tuple[float, ...]
    wrong: float

    @property
    def promise(self) -> str:
        """The procedure and its eps."""
        return f"by exit, {self.how}, eps {self.eps:g}, {self.tokens} tokens of {self.n} texts"

    def header_record(self) -> dict[str, Any]:
        """The procedure too."""
        return {**super().header_record(), "how": self.how, "tokens": self.tokens}


def method_without_knob(
    method: Mapping[str, Mapping[str, Any]], kind: str, knob: str
) -> dict[str, dict[str, Any]]:
    """A method's record but for one knob, as JSON gives it back."""
    rest = {x: {k: v for k, v in part.items() if (x, k) != (kind, knob)} for x, part in method.items()}
    whole: dict[str, dict[str, Any]] = json.loads(json.dumps(rest))
    return whole


def _first_difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first knob that differs, with its earlier value; "" if there is none."""
    for kind, part in then.items():
        here = now.get(kind, {})
        for knob, value in part.items():
            if here.get(knob) != value:
                return f"{kind} = {value}" if knob == "name" else f"{kind}.{knob} = {str(value)[:60]}"
    return ""


def default_folder() -> Path:
    """The folder of the files that are called by name, next to the user's other data."""
    return data_folder() / "calibrated"


def load_named(text: str) -> CalibratedValue:
    """Load the calibration that `calibrated:NAME` names.

    NAME is a name, never a path: what a page is sent opens no file elsewhere. Raises ParamError.
    """
    name = text.removeprefix(MARK)
    if not NAME.fullmatch(name):
        raise ParamError(
            f"{text[:80]!r}: a name has letters, digits, - and _; a path is for the command line and for `load_calibration`."
        )
    return load_calibration(default_folder() / f"{name}{ENDING}")


def load_calibration(path: Path) -> CalibratedValue:
    """Load the value from a file without trusting anything in it. Raises ParamError."""
    try:
        if path.stat().st_size > BYTES:
            raise ParamError(f"{path} is larger than {BYTES >> 20} MiB, the limit of a calibration; {AGAIN}.")
        said = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise ParamError(f"There is no calibration {str(path)[:200]}; {AGAIN}, or give a number.") from None
    except (ValueError, RecursionError):
        raise ParamError(f"{path} is no calibration: it is not JSON; {AGAIN}.") from None
    held = _from_record(said)
    if held is None:
        raise ParamError(f"{path} is no calibration of version {VERSION}, or not what it was; {AGAIN}.")
    return held


def _from_record(said: Any) -> CalibratedValue | None:
    """Build the calibration that plain data describe; None if they describe none."""
    if not isinstance(said, dict) or said.get("calibration") != VERSION:
        return None
    rest = {key: x for key, x in said.items() if key not in ("calibration", "rule")}
    lists = {key: tuple(x) for key, x in rest.items() if isinstance(x, list)}
    whole: Calibration | ConformalThresholds | None = None
    if rest.keys() == _field_names(ConformalThresholds) and lists.keys() == {"value", "agreed", "leave"}:
        whole = ConformalThresholds(**{**rest, **lists})
    elif (
        rest.keys() == _field_names(Calibration)
        and lists.keys() == {"curve"}
        and all(map(_is_point, lists["curve"]))
    ):
        points = tuple(CalibrationPoint(**{**x, "losses": tuple(x["losses"])}) for x in lists["curve"])
        whole = Calibration(**{**rest, "curve": points})
    return whole if whole is not None and _is_consistent(whole) and whole.rule == said.get("rule") else None


def _is_point(x: Any) -> bool:
    return (
        isinstance(x, dict) and x.keys() == _field_names(CalibrationPoint) and isinstance(x["losses"], list)
    )


def _field_names(of: type[CalibratedValue] | type[CalibrationPoint]) -> set[str]:
    return {x.name for x in fields(of)}


def _is_consistent(one: Calibration | ConformalThresholds) -> bool:
    """Whether every field has its type and range, and the measurements support the value."""
    if isinstance(one, Calibration):
        words, counts = [one.risk, one.test], []
        numbers = [one.value, one.delta, *(x for y in one.curve for x in (y.value, y.risk, y.p, *y.losses))]
        passed = [x.value for x in one.curve if x.passed]
        said = bool(passed) and passed[-1] == one.value and all(len(x.losses) == one.n for x in one.curve)
    else:
        words, counts = [one.how], [one.tokens]
        numbers = [*one.value, *one.agreed, *one.leave, one.wrong]
        said = 0 < len(one.value) == len(one.agreed) == len(one.leave)
    texts = (one.name, one.part, one.knob, one.texts, *words)
    shapes = [
        isinstance(x, dict) and all(isinstance(y, dict) for y in x.values()) for x in (one.models, one.method)
    ]
    return (
        said
        and all(isinstance(x, str) and len(x) <= 200 for x in texts)
        and all(map(_is_number, [*numbers, one.eps]))
        and all(isinstance(x, int) for x in (one.n, one.max_new_tokens, one.seed, *counts))
        and all(shapes)
        and all(isinstance(x.get(y), str) for x in one.models.values() for y in ("name", "fingerprint"))
    )


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def write(one: CalibratedValue, path: Path) -> None:
    """Write it to a file, in one piece or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        part.write_text(json.dumps(one.record(), allow_nan=False) + "\n", encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
