"""Vote: leave once enough exits have named the same token."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.exit_rule import ExitRule
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Skip


@component
class Vote(ExitRule):
    """Each exit so far has one vote, for its best token.

    Exit when the votes of the leading token, divided by n^power for n exits so far, reach `min_votes`. Power 0 counts votes,
    and power 1 takes their share. Between them, agreement has to grow with the number of exits. The text goes on with the token
    of the exit itself, which need not be the leading one. The division is from the ensemble paper as remembered, not checked:
    [recalled]. Lossy.
    """

    title = "Vote of the exits"
    source = "Sun et al. 2021, arXiv:2105.13792, section 3.2 [recalled]"

    min_votes: float = param(
        2.0,
        low=0.0,
        high=64.0,
        step=0.1,
        help="votes of the leading token, divided by exits^power, at which the pass exits",
    )
    power: float = param(
        0.5,
        low=0.0,
        high=1.0,
        step=0.05,
        help="exponent of the number of exits that divides the votes (lambda); 0: votes as counted",
    )

    def plan(self, position: int, feed: Feed) -> Skip:
        self._cast: list[Tensor] = []  # best token of each row by exit, int64 [B, T]
        return super().plan(position, feed)

    def bound(self, layer: int) -> float:
        return self.min_votes

    def score(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> Tensor | None:
        self._cast.append(read().argmax(-1))
        cast = torch.stack(self._cast, -1)  # [B, T, n]
        lead = (cast[..., None] == cast[..., None, :]).sum(-1).amax(-1)
        share: Tensor = lead / cast.shape[-1] ** self.power
        return share
