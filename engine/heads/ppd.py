"""PPD's prompt tokens: trained embeddings that the target reads behind a token, and where it then guesses later ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .base import Head


class PromptTokens(Head):
    """`heads` prompt tokens; number k (from 0) stands k + 1 positions behind token t and guesses token t + 2 + k, as the target
    itself guesses t + 1 at t. Each has `ensemble` embeddings, the members, which are rows of their own in the target's pass
    and whose logits are averaged. Member j sees the text up to t and member j of the prompt tokens before it, and no other.

    They are no net: what makes states of them is the target, unchanged.
    """

    kind = "ppd"

    def __init__(self, d: int, heads: int, ensemble: int = 1) -> None:
        super().__init__(d=d, heads=heads, ensemble=ensemble)
        self.embeds = nn.Parameter(torch.randn(heads, ensemble, d) * 0.02)

    def rows(self, counts: Sequence[int]) -> Tensor:
        """int64 [3, S]: place, number and member of every row, when the first counts[i] prompt tokens hang at place i."""
        members = range(self.shape["ensemble"])
        rows = [(i, k, j) for i, count in enumerate(counts) for k in range(count) for j in members]
        return torch.tensor(rows).view(-1, 3).T

    def forward(self, rows: Tensor) -> Tensor:
        """float [S, d]: what enters the target's first layer in the rows [3, S]."""
        return self.embeds[rows[1], rows[2]]

    def averaged(self, logits: Tensor) -> Tensor:
        """float [S / ensemble, V]: the mean of the members' logits [S, V]."""
        return logits.unflatten(0, (-1, self.shape["ensemble"])).mean(1)


def visible(rows: Tensor) -> Tensor:
    """bool [S, S]: which of each other the rows [3, S] see: of one place and member, themselves and those before."""
    place, number, member = rows
    return (place[:, None] == place) & (member[:, None] == member) & (number <= number[:, None])
