"""Low confidence: each pass commits a fixed number of places; the least confident ones stay open."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.unmasking import CanvasView, SelectorChoice, Unmasking
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.trace.details.canvas_fill import scheduled_count

from .shared.words import SCHEDULED


@component
class LowConfidence(Unmasking):
    """Commit the most confident candidates of a block, as many per pass as the schedule gives.

    For m places these are m // S, and one more in each of the first m % S passes. A low-confidence place is masked again,
    because it was never committed.

    The authors set the steps of the whole text, and its blocks share them evenly. Here they are set per block, so that any
    length of a text and of a block is allowed. With more steps than places in a block, it is one place per pass.
    """

    title = "Low confidence"
    source = (
        "LLaDA: Nie et al. 2025, arXiv:2502.09992, section 2.4; ML-GSAI/LLaDA, generate.py (low_confidence)"
    )
    commits = "schedule"
    words: ClassVar = {"scheduled": SCHEDULED}

    steps: int = param(32, low=1, high=1024, unit="passes", help="number of passes that fill a block (S)")

    def select(self, view: CanvasView, chance: Chance) -> SelectorChoice:
        first, behind = view.block
        return SelectorChoice(
            scheduled_count(behind - first, self.steps, view.passes), ["scheduled"] * len(view.places)
        )
