"""Random: each pass commits a fixed number of randomly drawn places."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.unmasking import CanvasView, SelectorChoice, Unmasking
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.trace.details.canvas_fill import scheduled_count

from .shared.words import SCHEDULED


@component
class Random(Unmasking):
    """Commit open places of a block in a new random order in each pass, as many as the schedule of `low_confidence` gives.

    One place per pass, with candidates drawn at temperature 1 from a model that is exact at every canvas, samples the model's
    own joint distribution. Several places per pass are drawn as if they were independent of each other.
    """

    title = "Random order"
    source = "LLaDA: Nie et al. 2025, arXiv:2502.09992, section 2.4; ML-GSAI/LLaDA, generate.py (random)"
    commits = "schedule"
    words: ClassVar = {"scheduled": SCHEDULED}

    steps: int = param(32, low=1, high=1024, unit="passes", help="number of passes that fill a block (S)")

    def select(self, view: CanvasView, chance: Chance) -> SelectorChoice:
        first, behind = view.block
        order = np.empty(len(view.places), np.int32)
        order[chance.shuffle(len(view.places), first)] = np.arange(len(view.places), dtype=np.int32)
        count = scheduled_count(behind - first, self.steps, view.passes)
        return SelectorChoice(count, ["scheduled"] * len(view.places), order=order)
