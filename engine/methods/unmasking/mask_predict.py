"""Mask-Predict: all places are written at once; then the least confident ones are masked and written again."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.unmasking import CanvasView, SelectorChoice, Unmasking
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.trace.details.canvas_fill import least_confident_places, remask_count
from decodescope.engine.trace.details.declarations import CanvasWord, Sentence


@component
class MaskPredict(Unmasking):
    """Write every open place of a block, then mask the k least confident places again for the next pass, whenever they were
    written. k = floor(m (1 - t / T)) of m places before pass t, at least 1. A place that is not masked again keeps its token
    and the confidence that it was written with. After T passes the block is final, and is emitted; with T = 1, one pass writes
    it in one shot.

    The authors predict the length of the text, and take the best of several lengths. Here a text is as long as its canvas, up
    to a token that ends it. The authors fill the whole text at once; this is a block as long as the canvas.
    """

    title = "Mask-Predict"
    source = "Ghazvininejad et al. 2019, arXiv:1904.09324, section 3; facebookresearch/Mask-Predict, mask_predict.py"
    commits = "revise"
    words: ClassVar = {"written": CanvasWord("•", "written", [Sentence("It was settled: written.")])}
    reopens = True

    steps: int = param(10, low=1, high=1024, unit="passes", help="number of passes that fill a block (T)")

    def select(self, view: CanvasView, chance: Chance) -> SelectorChoice:
        first, behind = view.block
        confidence = {
            **view.written,
            **dict(zip(view.places.tolist(), view.confidence.tolist(), strict=True)),
        }
        again = least_confident_places(confidence, remask_count(behind - first, self.steps, view.passes))
        return SelectorChoice(len(view.places), ["written"] * len(view.places), reopened=again)
