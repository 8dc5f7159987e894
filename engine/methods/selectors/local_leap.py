"""LocalLeap: near a place that the model is sure of less is enough."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.selector import Choice, Open, Selector
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.trace.details.declarations import CanvasWord, Sentence
from decodescope.engine.trace.details.filled import leapt

from .shared.words import BEST, SURE


@component
class LocalLeap(Selector):
    """As `threshold`, but within `radius` places of an anchor, an open place whose confidence reaches tau, a confidence of
    `relaxed` is enough. Anchors are found anew in each pass, among open places alone: what was committed before is none.

    The authors' option to fill a block behind its first end token is not here: the text ends there anyway.
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
        0.9, low=0.0, high=1.01, step=0.01, help="confidence that is enough anywhere, and makes an anchor"
    )
    relaxed: float = param(
        0.75, low=0.0, high=1.01, step=0.01, help="tau_r, confidence that is enough near an anchor"
    )
    radius: int = param(4, low=0, high=256, unit="places", help="how far from an anchor near is")

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.relaxed <= self.tau:
            return None
        return (
            f"local_leap.relaxed = {self.relaxed:g} is above tau = {self.tau:g}: "
            "choose at most tau, or the selector threshold."
        )

    def select(self, view: Open, chance: Chance) -> Choice:
        anchors, bars = leapt(view.places, view.confidence, self.tau, self.relaxed, self.radius)
        sure, near = view.confidence >= np.float32(self.tau), view.confidence >= bars
        rules = np.where(sure, "sure", np.where(near, "near", "best")).tolist()
        return Choice(1, rules, bars, anchors=anchors.tolist())
