"""SlotTokens: trained embeddings in slots of the target's own pass, after a token, that guess later tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..base import Head


class SlotTokens(Head):
    """Base. Number k (from 0) is k + 1 positions after token t and guesses token t + 2 + k, as the target itself guesses
    t + 1 at t. Each has one or several embeddings, its members, which are rows of their own; member j sees the text up to t
    and member j of those before it, and no other.

    embeds: float [heads, members, d]. They are not a net: the target, unchanged, computes their states.
    """

    def __init__(self, d: int, heads: int, members: int = 1, **more: int) -> None:
        super().__init__(d=d, heads=heads, **more)
        self.embeds = nn.Parameter(torch.randn(heads, members, d) * 0.02)

    @property
    def prefix_kv(self) -> Tensor | None:
        """What the slots attend to in addition to the text, as in `Slots.prefix`; None: nothing."""
        return None

    def rows(self, counts: Sequence[int]) -> Tensor:
        """int64 [3, S]: place, number and member of every row, when the first counts[i] of them hang at place i."""
        members = range(self.embeds.shape[1])
        rows = [(i, k, j) for i, count in enumerate(counts) for k in range(count) for j in members]
        return torch.tensor(rows).view(-1, 3).T

    def forward(self, rows: Tensor) -> Tensor:
        """float [S, d]: what enters the target's first layer in the rows [3, S]."""
        return self.embeds[rows[1], rows[2]]

    def average_members(self, logits: Tensor) -> Tensor:
        """float [S / members, V]: the mean of the members' logits [S, V]."""
        mean: Tensor = logits.unflatten(0, (-1, self.embeds.shape[1])).mean(1)
        return mean


def slot_mask(rows: Tensor) -> Tensor:
    """bool [S, S]: which of each other the rows [3, S] see: of one place and member, themselves and those before."""
    place, number, member = rows
    sees: Tensor = (place[:, None] == place) & (member[:, None] == member) & (number <= number[:, None])
    return sees
