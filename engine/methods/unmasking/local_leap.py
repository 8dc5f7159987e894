"""LocalLeap: near a place that the model is sure of, a lower confidence is enough."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.unmasking import CanvasView, SelectorChoice, Unmasking
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.trace.details.canvas_fill import leap_bars
from decodescope.engine.trace.details.declarations import CanvasWord, Sentence

from .shared.words import BEST, SURE


@component
class LocalLeap(Unmasking):
    """As `threshold`, but near an anchor a confidence of `relaxed_tau` is enough.

    An anchor is an open place with a confidence of at least tau, and its neighbourhood is `anchor_radius` places. Anchors are
    found again in each pass, among open places only: a committed place is not an anchor.

    The authors' option to fill a block behind its first end token is left out, because the text ends there anyway.
    """

    title = "LocalLeap"
    source = "Local Determinism Propagation 2025, arXiv:2510.07081; formula read from a copy of friedrichor/LocalLeap"
    commits = "leap"
    words: ClassVar = {
        "best": BEST,
        "sure": SURE,
        "near": CanvasWord(
            "◐",
            "reaches a bar that an anchor lowered",
            [Sentence("An anchor near it lowered its bar ({anchors}), and its confidence reaches that.")],
        ),
    }

    tau: float = param(
        0.9,
        low=0.0,
        high=1.01,
        step=0.01,
        help="confidence needed to commit any place; a place that reaches it is an anchor (tau)",
    )
    relaxed_tau: float = param(
        0.75, low=0.0, high=1.01, step=0.01, help="confidence needed to commit a place near an anchor (tau_r)"
    )
    anchor_radius: int = param(
        4,
        low=0,
        high=256,
        unit="places",
        help="distance from an anchor within which the lower confidence is enough",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.relaxed_tau <= self.tau:
            return None
        return (
            f"local_leap.relaxed_tau = {self.relaxed_tau:g} is above tau = {self.tau:g}: "
            "choose at most tau, or the unmasking threshold."
        )

    def select(self, view: CanvasView, chance: Chance) -> SelectorChoice:
        anchors, bars = leap_bars(
            view.places, view.confidence, self.tau, self.relaxed_tau, self.anchor_radius
        )
        sure, near = view.confidence >= np.float32(self.tau), view.confidence >= bars
        rules = np.where(sure, "sure", np.where(near, "near", "best")).tolist()
        return SelectorChoice(1, rules, bars, anchors=anchors.tolist())
