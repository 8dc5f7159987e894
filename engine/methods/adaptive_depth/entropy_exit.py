"""Entropy exit: leave once the entropy of an early layer's answer is below a threshold in nats."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.exit_rule import ExitRule

from .shared.entropy import OVER, entropy


@component
class EntropyExit(ExitRule):
    """BranchyNet and DeeBERT: exit in front of the first layer at which the entropy H(p) of the exit's distribution, in nats,
    is below the threshold. Their answers are a few classes. Here they are a vocabulary, so a threshold does not carry over
    between models. `entropy_over` = "top" uses the 16 likeliest tokens alone, renormalised.

    `thresholds`, if given, holds one threshold per exit, in order, as BranchyNet has one per branch. The last value applies to
    all further exits. A threshold of 0 never exits. Lossy.
    """

    title = "Entropy exit (BranchyNet, DeeBERT)"
    source = (
        "Teerapittayanon et al. 2016, arXiv:1709.01686, algorithm 1; Xin et al. 2020, arXiv:2004.12993; castorini/DeeBERT, "
        "modeling_highway_bert.py"
    )
    below: ClassVar[bool] = True

    threshold: float = param(
        0.5, low=0.0, high=16.0, step=0.05, unit="nats", help="entropy below which the pass exits; 0: never"
    )
    thresholds: tuple[float, ...] = param(
        (),
        low=0.0,
        high=16.0,
        unit="nats",
        help="thresholds of the exits, the last one for all further exits; empty: one for all",
        least=0,
    )
    entropy_over: str = param(
        "vocabulary",
        choices=OVER,
        help="tokens whose entropy is measured: the whole vocabulary, or the 16 most likely (top)",
    )

    def bound(self, layer: int) -> float:
        return self.exit_bound(layer, self.thresholds, self.threshold)

    def score(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> Tensor | None:
        return entropy(read(), self.entropy_over)[0]
