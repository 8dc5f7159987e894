"""The judge: whether the token that the target has just read continues the text correctly, whatever proposed it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from .base import Head, HeadLinear


class JudgeHead(Head):
    """One linear map to a number, w h + b, read off the target's final feature at the position of the token that is judged:
    the target has seen the token by then. It begins at zero: such a judge outputs one half for everything.

    Bachmann et al. 2025, arXiv:2501.19309.
    """

    __call__: Callable[..., Tensor]

    kind = "judge"

    def __init__(self, d: int) -> None:
        super().__init__(d=d)
        self.says = HeadLinear(d, 1)
        for p in self.parameters():
            nn.init.zeros_(p)

    def forward(self, h: Tensor) -> Tensor:
        """The logit [...] of being right, for final features h [..., d]."""
        return self.says(h)[..., 0]

    def right_probability(self, h: Tensor) -> Tensor:
        """float [...]: j, how sure it is that the token is right, from 0 to 1."""
        return self(h).float().sigmoid()
