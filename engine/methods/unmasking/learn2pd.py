"""Learn2PD: a trained filter decides which places are final, and everything after the end of the text is dropped."""

from __future__ import annotations

from typing import ClassVar, cast

import numpy as np
import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.unmasking import CanvasView, SelectorChoice, Unmasking
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.heads.learn2pd import ParallelFilter
from decodescope.engine.trace.details.canvas_fill import filter_bars, find_cut, scheduled_count
from decodescope.engine.trace.details.declarations import CanvasWord, Sentence

from .shared.words import SCHEDULED


@component
class Learn2PD(Unmasking):
    """Commit the places that the schedule of `low_confidence` requires, and every other place that the filter finds final. The
    filter is two small layers over the confidences of the whole block. It was trained to recognise candidates that match a text
    written one place per pass.

    `cut_after_end` is End-of-Text Prediction: if the candidate of an open place ends the text, nothing behind it is decoded or
    fed any more. The cut is at the first such place that the filter finds final. Otherwise it is at the place with the most
    confident end, which itself stays open until it is committed. `filter_threshold` = 1 is the schedule with only the cut;
    without the cut it is `low_confidence`.

    Differences from the authors' code: a settled place enters the filter as 1; theirs enters as the model's confidence in its
    best token there. The end is searched among the places of the block; theirs on the whole canvas. If a cut canvas then gets
    another token in its last place, a further canvas follows; theirs stops.
    """

    title = "Learn2PD with End-of-Text Prediction"
    source = "Bao et al. 2025, arXiv:2509.25188; ims-kdks/Learning-to-Parallel-Decoding, llada/generate.py (generate_l2p_eot)"
    commits = "filter"
    words: ClassVar = {
        "scheduled": SCHEDULED,
        "final": CanvasWord("•", "final", [Sentence("It was settled: final.")]),
    }

    filter_threshold: float = param(
        0.96, low=0.0, high=1.0, step=0.01, help="filter score above which a place is committed; 1: never"
    )
    steps: int = param(
        32, low=1, high=1024, unit="passes", help="maximum number of passes that fill a block (S)"
    )
    cut_after_end: bool = param(True, help="drop the places after a predicted end of the text")

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return missing_reason(ParallelFilter.kind, spec, "the unmasking threshold")

    @property
    def drops(self) -> bool:
        return self.cut_after_end

    def begin(self, decoder: Decoder) -> None:
        self._filter = cast(ParallelFilter, decoder.heads[ParallelFilter.kind])

    def select(self, view: CanvasView, chance: Chance) -> SelectorChoice:
        first, behind = view.block
        confidence = torch.ones(behind - first)
        at = torch.from_numpy(view.places.astype(np.int64) - first)
        confidence[at] = torch.from_numpy(view.confidence)
        final = self._filter.final_probability(confidence.to(self._filter.device))[at].cpu().numpy()
        bars = filter_bars(final, self.filter_threshold)
        rules = np.where(bars == 0, "final", "scheduled").tolist()
        cut = (
            find_cut(view.places, view.candidate, view.confidence, bars, view.ends)
            if self.cut_after_end
            else None
        )
        return SelectorChoice(
            scheduled_count(behind - first, self.steps, view.passes), rules, bars, final=final, cut=cut
        )
