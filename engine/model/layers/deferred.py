"""Deferred tokens: their pass stopped before a layer, and they wait until they go on from there together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DeferredTokens:
    """Tokens that have entries below `layer`, and none from it on. If tokens wait at several layers, those that wait higher up
    come before the others in the text: tokens that go on take along those they meet.

    states:    float [B, W, d_model], which enter `layer`
    tokens:    int64 [B, W];  positions: int64 [B, W], rising
    """

    layer: int
    states: Tensor
    tokens: Tensor
    positions: Tensor

    def __len__(self) -> int:
        return self.states.shape[1]

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """All that is held of them."""
        return self.states, self.tokens, self.positions

    def select(self, rows: list[int]) -> DeferredTokens:
        """Those of them."""
        return DeferredTokens(self.layer, self.states[:, rows], self.tokens[:, rows], self.positions[:, rows])

    def concat(self, other: DeferredTokens | None) -> DeferredTokens:
        """These, and `other` after them, which wait at the same layer."""
        if other is None:
            return self
        pairs = zip(self.tensors, other.tensors, strict=True)
        return DeferredTokens(self.layer, *(torch.cat(pair, 1) for pair in pairs))

    def before_position(self, length: int) -> DeferredTokens:
        """Those at positions below `length`."""
        return self.select([*range(max(0, min(len(self), length - int(self.positions[0, 0]))))])

    def reorder(self, order: Tensor) -> DeferredTokens:
        """Sequence b becomes sequence order[b] (int64 [B'])."""
        return DeferredTokens(self.layer, *(x.index_select(0, order) for x in self.tensors))
