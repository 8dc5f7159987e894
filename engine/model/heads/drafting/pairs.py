"""Pairs: code shared by nets with slots that hold a feature of the target and the token after it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ...stores.cache import LayerStore
from ..base import Head
from .attention import DraftAttention


class PairHead(Head):
    """Base of nets that read along with the target: slot t holds the processed target state of token t, and the embedding of
    the token after it; `attention` has the cache of a text."""

    __call__: Callable[..., Tensor]

    attention: DraftAttention

    def store(self) -> LayerStore:
        """An empty store for keys and values of one sequence."""
        return self.attention.store()

    def enter(self, states: Tensor) -> Tensor:
        """The part of the target's state [..., d] that a slot reads: the state itself."""
        return states

    def forward(
        self,
        features: Tensor,
        embedded: Tensor,
        start: int = 0,
        store: LayerStore | None = None,
        depth: int = 0,
        visible: Tensor | None = None,
    ) -> Tensor:
        """The outputs [B, T, d] for features and embeddings [B, T, d]; the rest is `Attention.forward`'s."""
        raise NotImplementedError
