"""Greedy: always the most likely token."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.sampler import Sampler, one_token


@component
class Greedy(Sampler):
    """The distribution with one token: the largest logit, and the lowest id of equal ones."""

    title = "Greedy"
    source = "argmax"

    @property
    def greedy(self) -> bool:
        return True

    def warp(self, logits: Tensor, state: Any) -> Tensor:
        return one_token(logits)
