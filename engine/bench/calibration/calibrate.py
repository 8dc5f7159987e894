"""Calibrate: choose a knob's value under which texts hold a risk, by tests over texts that the method writes itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from decodescope.engine.core.calibration import Calibration, CalibrationPoint, method_without_knob
from decodescope.engine.core.params import Param, did_you_mean
from decodescope.engine.cost.risk import binomial, fixed_sequence_test, hoeffding_bentkus
from decodescope.engine.session.compatibility import pair_models
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.session import Session

from ..labbench import answer_text
from ..questions.score import levenshtein, score

RISKS = {
    "edit": "edits (insert, delete, replace a token) from the target's own text, as a share of the longer text's tokens",
    "differs": "whether any token differs from the target's own text, 0 or 1",
    "task": "how much of the score of the target's own answer is lost, never below 0",
}


@dataclass(frozen=True)
class CalibrationText:
    """A prompt as token ids, and for the risk "task" the reference that its answer is compared with."""

    prompt: tuple[int, ...]
    reference: str = ""
    scorer: str | None = None


@dataclass(frozen=True)
class CalibrationSettings:
    """The risk, its bound delta, the chance eps that the bound does not hold, and how long texts get."""

    delta: float = 0.1
    eps: float = 0.05
    risk: str = "edit"
    max_new_tokens: int = 64
    seed: int = 0


class CalibrationError(MethodError):
    """Not even the safe end of the grid holds the risk."""


def find_knob(method: Method, name: str) -> tuple[str, Param]:
    """Kind and knob of PART.knob, a number of a part of `method`. Raises MethodError."""
    kind, _, knob = name.partition(".")
    part = method.parts().get(kind)
    known = {x.name: x for x in part.params() if x.type in (int, float)} if part is not None else {}
    if part is None or knob not in known:
        named = [
            f"{x}.{y.name}"
            for x, p in method.used_parts.items()
            for y in p.params()
            if y.type in (int, float)
        ]
        has = f"{did_you_mean(name, named)} There are: {', '.join(named)}."
        raise MethodError(f"no part of this method has a number {name[:60]!r}.{has}")
    return kind, known[knob]


def with_knob(method: Method, kind: str, knob: str, value: float | tuple[float, ...]) -> Method:
    """The method with one knob at this value. Raises ParamError where it may not have it."""
    part: Any = getattr(method, kind)
    changed: dict[str, Any] = {kind: replace(part, **{knob: value})}
    return replace(method, **changed)


def calibrate(  # noqa: PLR0913
    model: Model,
    method: Method,
    knob: str,
    grid: Sequence[float],
    texts: Sequence[CalibrationText],
    aim: CalibrationSettings = CalibrationSettings(),
    *,
    models: Mapping[str, Model] | None = None,
    name: str = "",
    whole: bool = False,
    say: Callable[[CalibrationPoint], None] = lambda point: None,
) -> Calibration:
    """The last value of `grid`, from its safe end on, up to which every value holds the risk.

    The method is learn then test, by fixed-sequence testing. The texts run free, each from its prompt to its end. They are
    compared with what the target alone writes with the same sampler, all layers, and a whole cache. So any part may be lossy,
    and all of that is in the risk.

    Let the texts be drawn independently. Over their draw, the chance that a further text of the same kind has an expected loss
    above delta is at most eps. A grid whose order was fitted to the same texts voids that. whole: values behind the first one
    that failed are decoded too, for the curve; they are not chosen. say: called with each point.

    Raises MethodError for a method that cannot run here, ParamError for a value that a knob cannot have, and CalibrationError.

    Source: Angelopoulos et al. 2021, arXiv:2110.01052; Schuster et al. 2022, arXiv:2207.07061, section 4. The authors' p-value
    is Hoeffding's; here it is Hoeffding-Bentkus, which is tighter where the risk is small, and the binomial tail where a loss
    is 0 or 1. Their dissimilarity of texts is a score of the task; here it is the share of edits, which needs none.
    """
    kind, param = find_knob(method, knob)
    _check(grid, texts, aim)
    steps = [with_knob(method, kind, param.name, x) for x in grid]
    used = pair_models(steps[0], model, models or {})
    for one in steps[1:]:
        one.check(model.spec, models or {})
    plain = Method(sampler=method.sampler)
    due = [_write_text(model, plain, text, {}, aim, i) for i, text in enumerate(texts)]
    test = binomial if aim.risk == "differs" else hoeffding_bentkus
    points: list[CalibrationPoint] = []
    going = True
    for value, one in zip(grid, steps, strict=True):
        said = [_write_text(model, one, text, models or {}, aim, i) for i, text in enumerate(texts)]
        losses = tuple(
            _loss(model, text, x, y, aim.risk) for text, x, y in zip(texts, said, due, strict=True)
        )
        p = test(losses, aim.delta)
        going = going and fixed_sequence_test([p], aim.eps) == 1
        points.append(CalibrationPoint(param.type(value), sum(losses) / len(losses), p, going, losses))
        say(points[-1])
        if not going and not whole:
            break
    passed = [x for x in points if x.passed]
    if not passed:
        raise CalibrationError(
            f"{knob} = {grid[0]:g}, the safe end of the grid, has a risk of {points[0].risk:.3f} on {len(texts)} texts: its "
            f"p = {points[0].p:.3g} is above {aim.eps:g}; begin at a safer value, give more texts, or a larger delta."
        )
    basis = calibration_basis(name, kind, param.name, method, used, texts, aim)
    tested: dict[str, Any] = {
        "risk": aim.risk,
        "test": test.__name__,
        "delta": aim.delta,
        "curve": tuple(points),
    }
    return Calibration(**basis, **tested, value=passed[-1].value)


def calibration_basis(
    name: str,
    kind: str,
    knob: str,
    method: Method,
    used: Mapping[str, Model],
    texts: Sequence[CalibrationText],
    aim: CalibrationSettings,
) -> dict[str, Any]:
    """The part of a calibration that records its method, models and texts, by the names of its fields. used: models by role."""
    return {
        "name": name,
        "part": kind,
        "knob": knob,
        "eps": aim.eps,
        "n": len(texts),
        "models": {role: {"name": x.name, "fingerprint": x.fingerprint} for role, x in used.items()},
        "method": method_without_knob(method.record(), kind, knob),
        "max_new_tokens": aim.max_new_tokens,
        "seed": aim.seed,
        "texts": _hash_prompts(texts),
    }


def _check(grid: Sequence[float], texts: Sequence[CalibrationText], aim: CalibrationSettings) -> None:
    """Raise MethodError where nothing could be tested."""
    if not grid or len(set(grid)) != len(grid):
        raise MethodError("the grid needs one value or more, each of them once, from the safe end on.")
    if not texts:
        raise MethodError("a calibration needs texts: give some.")
    if not (0 < aim.delta < 1 and 0 < aim.eps < 1):
        raise MethodError(f"delta = {aim.delta:g} and eps = {aim.eps:g} must lie between 0 and 1.")
    if aim.risk not in RISKS:
        raise MethodError(f"no risk is called {aim.risk[:40]!r}; there are {', '.join(RISKS)}.")
    if aim.risk == "task" and not all(x.scorer for x in texts):
        raise MethodError(
            "the risk task needs texts with references: give questions such as labbench's, or the risk edit."
        )


def _write_text(
    model: Model,
    method: Method,
    text: CalibrationText,
    models: Mapping[str, Model],
    aim: CalibrationSettings,
    turn: int,
) -> list[int]:
    """The method's text behind the prompt; the same draws for every value."""
    given = {role: models[role] for role in method.lanes if role in models}
    session = Session(
        model,
        method,
        text.prompt,
        models=given,
        max_new_tokens=aim.max_new_tokens,
        seed=aim.seed + turn,
        level="summary",
    )
    return [token for step in session.stream() for token in step.emitted]


def _loss(model: Model, text: CalibrationText, said: list[int], due: list[int], risk: str) -> float:
    """The loss, 0 to 1, of `said` compared with the expected `due`."""
    if risk == "differs":
        return float(said != due)
    if risk == "edit":
        longest = max(len(said), len(due))
        return levenshtein("".join(map(chr, said)), "".join(map(chr, due))) / longest if longest else 0.0
    assert text.scorer is not None
    ours, theirs = (score(text.scorer, answer_text(model, x), text.reference) for x in (said, due))
    return max(0.0, theirs - ours)


def _hash_prompts(texts: Sequence[CalibrationText]) -> str:
    """A hash of the prompts, 16 hex digits."""
    return hashlib.sha256(json.dumps([list(x.prompt) for x in texts]).encode()).hexdigest()[:16]
