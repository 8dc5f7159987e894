"""Mirostat 2: hold the surprise of the text near a target."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.values.alphabet import Alphabet

from .shared.surprise import surprise_bits, update_mu


@component
class Mirostat(Sampler):
    """Cut every token with a surprise -log2 p above mu, then move mu by the error of the drawn token.

    State: mu in bits, starting at twice the target. The most likely token always survives the cut. The surprise that moves mu
    is measured before the cut ("full"), as in the paper. "kept" measures it on the renormalised survivors, as llama.cpp does;
    the text is then more surprising than the target. mu is held within [0, 4 * target], because it would diverge if the target
    cannot be reached.
    """

    title = "Mirostat 2"
    source = "Basu et al. 2021, arXiv:2007.14966, algorithm 2"
    stateful = True
    reads_logits = True
    tells: ClassVar[dict[str, Note]] = {
        "mu": Note("series", "mu", "bits", "tokens of more surprise are cut", line="target_surprise"),
    }

    target_surprise: float = param(
        5.0, low=0.5, high=12.0, step=0.1, unit="bits", help="mean surprise per token to aim for (tau)"
    )
    learning_rate: float = param(
        0.1, low=0.01, high=1.0, step=0.01, help="learning rate of the cutoff mu (eta)"
    )
    measure: str = param(
        "full",
        choices=("full", "kept"),
        help="measure surprise before the cut (full, as in the paper), or after it (kept)",
    )

    def start(self, prompt: list[int], vocab: int, alphabet: Alphabet | None = None) -> float:
        return 2 * self.target_surprise

    def warp(self, logits: Tensor, state: float) -> Tensor:
        surprise = -logits.log_softmax(-1) / math.log(2)
        cut = (surprise > state).index_fill(0, surprise.argmin(), False)
        return logits.masked_fill(cut, -torch.inf)

    def update(self, state: float, token: int, logits: Tensor) -> float:
        law = logits if self.measure == "full" else self.warp(logits, state)
        return update_mu(state, surprise_bits(law, token), self.target_surprise, self.learning_rate)

    def state_summary(self, state: float) -> dict[str, Any]:
        return {"mu": state}
