"""Repetition penalty: make tokens that were already written less likely."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.values.alphabet import Alphabet


@component
class RepetitionPenalty(Sampler):
    """Divide the positive logits of tokens in prompt and text by the penalty, multiply the negative ones.

    State: the set of tokens seen so far.
    """

    title = "Repetition penalty"
    source = "Keskar et al. 2019 (CTRL), arXiv:1909.05858, section 4.1"
    stateful = True
    cuts = False
    tells: ClassVar[dict[str, Note]] = {
        "penalised": Note("series", "penalised", "tokens", "different ones that were written before"),
    }

    penalty: float = param(
        1.2,
        low=1.0,
        high=3.0,
        step=0.05,
        help="factor that weakens the logits of tokens already present; 1: no penalty",
    )

    def start(self, prompt: list[int], vocab: int, alphabet: Alphabet | None = None) -> frozenset[int]:
        return frozenset(prompt)

    def warp(self, logits: Tensor, state: frozenset[int]) -> Tensor:
        seen = torch.tensor(sorted(state), device=logits.device)
        z = logits[seen]
        return logits.index_put((seen,), torch.where(z > 0, z / self.penalty, z * self.penalty))

    def update(self, state: frozenset[int], token: int, logits: Tensor) -> frozenset[int]:
        return state if token in state else state | {token}

    def state_summary(self, state: frozenset[int]) -> dict[str, Any]:
        return {"penalised": len(state)}
