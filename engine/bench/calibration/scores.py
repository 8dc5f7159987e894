"""Scores: the results of an exit rule's tests along texts that the whole model writes, and thresholds by exit from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decodescope.engine.core.calibration import ConformalThresholds
from decodescope.engine.session.compatibility import pair_models
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.session import Session

from .calibrate import CalibrationSettings, CalibrationText, calibration_basis, with_knob
from .conformal_exits import Agrees, Procedure, Scores, cap_thresholds, exit_thresholds

KNOB = ("adaptive_depth", "thresholds")


def exit_scores(
    model: Model, method: Method, texts: Sequence[CalibrationText], max_new_tokens: int = 64, seed: int = 0
) -> tuple[Scores, Agrees]:
    """Scores and agreement, [m, L] each, of every token that the whole model writes behind the prompts.

    There is one column for each exit that the method's depth rule tests. It runs with a threshold that is never reached, so
    that no entry is an approximation. Raises MethodError for a rule without `thresholds` above which a pass leaves, or which
    leaves at the highest of them too, for tests that name no best token, for passes that read a draft, and for chance.
    """
    rule, (kind, knob) = method.adaptive_depth, KNOB
    highest = next((x.high for x in rule.params() if x.name == knob), None)
    other = MethodError(
        f"{rule.name} has no thresholds by exit that a token's score reaches: choose confidence_exit."
    )
    if highest is None:
        raise other
    if not method.sampler.greedy:
        raise MethodError("exits are compared by their best tokens: choose the sampler greedy.")
    if method.drafter.drafts:
        raise MethodError(
            f"thresholds by exit are for one token a pass, and {method.drafter.name} drafts: leave it out."
        )
    never = with_knob(method, kind, knob, (highest,))
    rows: list[list[float]] = []
    same: list[list[bool]] = []
    for i, text in enumerate(texts):
        session = Session(model, never, text.prompt, max_new_tokens=max_new_tokens, seed=seed + i)
        for step in session.stream():
            assert step.exits is not None
            (left,), (token,) = step.exits, step.emitted
            if left.below or left.best is None:
                raise other
            if left.depth < model.spec.n_layers:
                raise MethodError(
                    f"{rule.name} leaves at a threshold of {highest:g} too, as it is set: leave decay at 0."
                )
            rows.append([score for _, score, _ in left.tests])
            same.append([best == token for best in left.best])
    return np.array(rows, np.float64), np.array(same, np.bool_)


def calibrate_exits(
    model: Model,
    method: Method,
    texts: Sequence[CalibrationText],
    eps: float,
    how: Procedure = "shared",
    max_new_tokens: int = 64,
    seed: int = 0,
    name: str = "",
) -> ConformalThresholds:
    """The value of `thresholds` of the method's depth rule under which an exit seldom differs from the whole model.

    It differs with a chance of at most eps for a single token, its keys and values whole. The procedures are those with a
    guarantee. Raises what `exit_scores` does, and MethodError without texts or for an eps that is no chance.
    """
    if not texts or not 0 < eps < 1:
        raise MethodError(
            f"thresholds by exit need texts, and a chance between 0 and 1: {len(texts)} texts, eps = {eps:g}."
        )
    (kind, knob), aim = KNOB, CalibrationSettings(eps=eps, max_new_tokens=max_new_tokens, seed=seed)
    used = pair_models(method, model, {})
    scores, agrees = exit_scores(model, method, texts, max_new_tokens, seed)
    value = cap_thresholds(exit_thresholds(how, scores, agrees, eps))
    passes = scores >= value
    # [m], the number of exits for one that never leaves
    at = np.where(passes.any(1), passes.argmax(1), len(value))
    wrong = (at < len(value)) & ~np.take_along_axis(agrees, np.minimum(at, len(value) - 1)[:, None], 1)[:, 0]
    return ConformalThresholds(
        **calibration_basis(name, kind, knob, method, used, texts, aim),
        value=value,
        how=how,
        tokens=len(scores),
        agreed=tuple(agrees.mean(0).tolist()),
        leave=tuple((np.bincount(at, minlength=len(value) + 1)[:-1] / len(at)).tolist()),
        wrong=float(wrong.mean()),
    )
