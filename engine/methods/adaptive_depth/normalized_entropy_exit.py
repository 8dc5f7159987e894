"""Normalised entropy exit: leave once the entropy of an early layer's answer is a small share of its maximum."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.exit_rule import ExitRule

from .shared.entropy import OVER, entropy


@component
class NormalizedEntropyExit(ExitRule):
    """FastBERT: exit in front of the first layer at which the normalised entropy H(p) / log C is below the threshold.

    H(p) is the entropy of the exit's distribution. FastBERT calls the threshold the speed, and C is its number of classes. Here
    C is the number of tokens that the entropy covers: the vocabulary or (`entropy_over` = "top") the 16 likeliest,
    renormalised. A threshold of 0 never exits. Lossy.
    """

    title = "Normalised entropy exit (FastBERT)"
    source = (
        "Liu et al. 2020, arXiv:2004.02178, section 3.3, equation 6; autoliuweijie/FastBERT, run_fastbert.py"
    )
    below: ClassVar[bool] = True

    threshold: float = param(
        0.1,
        low=0.0,
        high=1.01,
        step=0.01,
        help="entropy, as a share of log C, below which the pass exits (speed); 0: never",
    )
    entropy_over: str = param(
        "vocabulary",
        choices=OVER,
        help="tokens whose entropy is measured: the whole vocabulary, or the 16 most likely (top)",
    )

    def bound(self, layer: int) -> float:
        return self.threshold

    def score(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> Tensor | None:
        nats, most = entropy(read(), self.entropy_over)
        return nats / most
