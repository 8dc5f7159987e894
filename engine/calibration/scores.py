"""Scores: what an exit rule's tests say along texts that the whole model writes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decodescope.engine.load import Model
from decodescope.engine.method import Method, MethodError
from decodescope.engine.session import Session

from .calibrate import Text, under
from .conformal import Agrees, Procedure, Scores, bounds, capped


def exit_scores(
    model: Model, method: Method, texts: Sequence[Text], max_new_tokens: int = 64, seed: int = 0
) -> tuple[Scores, Agrees]:
    """Scores and agreement, [m, L] each, of every token that the whole model writes behind the prompts, at each exit that the
    method's depth rule asks: run with a threshold that is never reached, so that no entry is an approximation. Raises
    MethodError for a rule without `thresholds` above which a pass leaves, for tests that name no best token, and for chance."""
    rule = method.depth
    highest = next((x.high for x in rule.params() if x.name == "thresholds"), None)
    other = MethodError(f"{rule.name} has no thresholds by exit that a token's score reaches: choose confidence_exit.")
    if highest is None:
        raise other
    if not method.sampler.greedy:
        raise MethodError("exits are compared by their best tokens: choose the sampler greedy.")
    never = under(method, "depth", "thresholds", (highest,))
    rows: list[list[float]] = []
    same: list[list[bool]] = []
    for i, text in enumerate(texts):
        session = Session(model, never, text.prompt, max_new_tokens=max_new_tokens, seed=seed + i)
        for step in session.stream():
            assert step.exits is not None
            (left,), (token,) = step.exits, step.emitted
            if left.below or left.best is None:
                raise other
            rows.append([score for _, score, _ in left.tests])
            same.append([best == token for best in left.best])
    return np.array(rows, np.float64), np.array(same, np.bool_)


def thresholds(
    model: Model, method: Method, texts: Sequence[Text], eps: float, how: Procedure = "shared", max_new_tokens: int = 64
) -> tuple[float, ...]:
    """The value of `thresholds` of the method's depth rule under which an exit seldom differs from the whole model: with a
    chance of at most eps for a single token, its keys and values whole. Raises what `exit_scores` does, ValueError without
    texts."""
    return capped(bounds(how, *exit_scores(model, method, texts, max_new_tokens), eps))
