"""Joint: the texts of several tokens that one pass offered, what each was worth, and the check of what was made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..values.limits import TraceError

ROUNDING = 1e-9  # of a sum of doubles


@dataclass
class Joint:
    """How many tokens a pass wrote at once, and which.

    threshold: what a text's joint probability must reach;  share: and what part of that of the best text of its length
    best:  of 1, 2, ... tokens the largest joint probability of those texts whose beginning reaches the threshold; where the
           last one lies below it, so does every text of that length
    level: so many tokens were written: the longest for which one text reached the threshold, at least 1
    texts: of that length those that could be written, the best first; empty where it is 1, and the token is the target's own
    alone: float, what the probability of each would be if its tokens had nothing to do with each other
    joint: float, the same corrected by what stands together;  chosen: which of them was written
    u:     the uniform that drew it, by the parts that they have of the sum; None: the best was taken
    """

    threshold: float
    share: float
    best: list[float]
    level: int
    texts: list[list[int]] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    joint: list[float] = field(default_factory=list)
    chosen: int | None = None
    u: float | None = None


def level_of(best: Sequence[float], threshold: float) -> int:
    """How many tokens are written at once: joint probabilities fall with the length, so the last that reaches it."""
    return max(1, sum(1 for x in best[1:] if x >= threshold) + 1)


def offered(joint: np.ndarray, threshold: float, share: float) -> np.ndarray:
    """int64: the texts that may be written, as indices, the best first, of equal ones the first."""
    order = np.argsort(-joint, kind="stable")
    return order[joint[order] >= max(threshold, share * float(joint.max()))]


def consistent_joint(joint: Joint | None, vocab: int) -> None:
    """What must agree inside the record, if there is one. Raises TraceError."""
    if joint is None:
        return
    n = len(joint.texts)
    if not len(joint.alone) == len(joint.joint) == n or any(len(text) != joint.level for text in joint.texts):
        raise TraceError(f"joint has not two numbers and {joint.level} tokens for each of its {n} texts")
    if any(not 0 <= token < vocab for text in joint.texts for token in text):
        raise TraceError(f"joint holds an id outside the vocabulary of {vocab:,}")
    if not all(0 <= x <= 1 + 1e-6 for x in (*joint.best, *joint.alone, *joint.joint)):
        raise TraceError("joint has an entry that is no probability")
    fits = (joint.chosen is None) == (n == 0) and 0 <= (joint.chosen or 0) < max(n, 1)
    if not fits or not 1 <= joint.level <= len(joint.best):
        raise TraceError(f"joint wrote text {joint.chosen} of {n}, of {joint.level} tokens")


def joint_problems(joint: Joint, emitted: Sequence[int]) -> Iterator[str]:
    """What is wrong with the record of a step that emitted these tokens, a phrase each."""
    if joint.level != (due := level_of(joint.best, joint.threshold)):
        yield f"it wrote {joint.level} tokens at once, and by the best joint probabilities {due} are due"
    if joint.chosen is None:
        if joint.level > 1 or len(emitted) != 1:
            yield f"it emitted {len(emitted)} tokens, and no text of several was chosen"
        return
    chances = np.array(joint.joint)
    if offered(chances, joint.threshold, joint.share).tolist() != list(range(len(chances))):
        yield "its texts are not those that reach threshold and share, the best first"
    if not math.isclose(joint.joint[0], joint.best[joint.level - 1], rel_tol=ROUNDING):
        yield f"its best text has {joint.joint[0]:.6g}, and {joint.best[joint.level - 1]:.6g} is told of that length"
    if joint.u is None:
        drawn = joint.chosen == 0
    else:
        ends = np.concatenate(([0.0], chances.cumsum() / chances.sum()))
        drawn = ends[joint.chosen] - ROUNDING <= joint.u < ends[joint.chosen + 1] + ROUNDING
    if not drawn:
        yield f"text {joint.chosen} was chosen with u = {joint.u}, which is another's"
    if list(emitted) != joint.texts[joint.chosen][: len(emitted)]:
        yield f"it emitted {list(emitted)}, and the text that it chose is {joint.texts[joint.chosen]}"
