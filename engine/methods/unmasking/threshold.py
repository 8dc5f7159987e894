"""Threshold: each pass commits every place that the model is sure of, and always the surest one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.unmasking import CanvasView, SelectorChoice, Unmasking
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.trace.details.canvas_fill import factor_count
from decodescope.engine.trace.details.declarations import CanvasWord, Sentence

from .shared.words import BEST, SURE


@component
class Threshold(Unmasking):
    """Commit the most confident candidate of a block, and every other candidate with a confidence of at least tau.

    So a block takes as many passes as it needs. A tau above 1 commits one place per pass.

    Several places at once may be right for this reason. Let n candidates each have a probability of more than 1 - e, with (n +
    1) e <= 1. Then the most likely text of all n consists of the candidates, however they depend on each other (theorem 1).
    `factor` f uses this: the n most confident are committed, for the largest n with (n + 1) (1 - c_n) < f. c_n is the smallest
    of their confidences. With 0, tau decides. This is the factor rule of algorithm 1.
    """

    title = "Confidence threshold"
    source = "Fast-dLLM: Wu et al. 2025, arXiv:2505.22618, section 3.3; NVlabs/Fast-dLLM, llada/generate.py"
    commits = "bar"
    words: ClassVar = {
        "best": BEST,
        "sure": SURE,
        "factor": CanvasWord(
            "ƒ",
            "factor rule",
            [
                Sentence(
                    "The {count} surest places: the largest n for which (n + 1)(1 − c) stays below the factor."
                )
            ],
        ),
    }

    tau: float = param(
        0.9,
        low=0.0,
        high=1.01,
        step=0.01,
        help="confidence needed to commit a place (tau); above 1: one place per pass",
    )
    factor: float = param(
        0.0,
        low=0.0,
        high=4.0,
        step=0.1,
        help="factor of the rule that replaces the confidence threshold (f); 0: use tau",
    )

    def select(self, view: CanvasView, chance: Chance) -> SelectorChoice:
        if self.factor > 0:
            count = factor_count(view.confidence, self.factor)
            return SelectorChoice(count, ["factor" if count > 1 else "best"] * len(view.places))
        bars = np.full(len(view.places), self.tau, np.float32)
        return SelectorChoice(1, ["sure" if sure else "best" for sure in view.confidence >= bars], bars)
