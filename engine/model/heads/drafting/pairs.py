"""Pairs: code shared by nets with slots that hold a feature of the target and the token after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from ...stores.cache import LayerStore
from ..base import Head
from .attention import DraftAttention


class PairHead(Head):
    """Base of nets that read along with the target: slot t holds the processed target state of token t, and the embedding of
    the token after it; `attention` has the cache of a text."""

    __call__: Callable[..., Tensor]

    attention: DraftAttention

    def places(self, n_layers: int) -> tuple[int | Literal["final"], ...]:
        """The places of a target of so many layers that have their states read, one after the other: the final feature."""
        return ("final",)

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


def group_rows(rows: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """The rows of all groups of a text, as training reads them at once: a pair with masks behind it is a group.

    rows: of each place of a group, for how many slots, falling. The rows come place by place.
    -> int64 [R], the position of each row, and bool [R, R], which rows each one sees. A pair sees the pairs up to its own. The
    masks after slot t see the pairs up to t and those before them in their own group, and nothing of another.
    """
    slots = torch.cat([torch.arange(R, device=device) for R in rows])
    place = torch.repeat_interleave(torch.arange(len(rows), device=device), torch.tensor(rows, device=device))
    text = (place == 0) & (slots <= slots[:, None])
    own = (slots == slots[:, None]) & (place <= place[:, None])  # its slot, the masks of its group up to it
    return slots + place, text | own
