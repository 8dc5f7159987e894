"""Infiller: fill gaps in several texts at once by a masked-diffusion model, which reads both sides of each gap."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from decodescope.engine.model.forward.feed import Feed

from ..bases.lane import Lane


class Gap(NamedTuple):
    """A text with a gap: the ids before and after it."""

    before: list[int]
    behind: list[int]


class Infiller:
    """Writes into gaps by the model of `lane`, which has no causal mask and has a mask token. All texts are rows of one pass;
    each text sees its own rows alone. Nothing is kept from one pass to the next. A pass settles the likeliest tokens at the
    most confident places of each gap. Each pass settles an equal part of all places.

    barred: ids that are never written, in addition to the mask token
    """

    def __init__(self, lane: Lane, barred: Collection[int] = ()):
        mask = lane.decoder.spec.mask_token
        assert mask is not None, "a model without a mask token was refused"
        self.lane, self.mask = lane, mask
        lane.truncate(0)
        self._barred = torch.tensor(sorted({mask, *barred}), device=lane.decoder.device)
        self._barred = self._barred[self._barred < lane.decoder.vocab]

    @property
    def max_length(self) -> int:
        """Tokens that a text may have, including its gap."""
        return self.lane.decoder.spec.max_positions

    def fill(self, gaps: Sequence[Gap], size: int, passes: int) -> list[list[int]]:
        """The `size` ids that are written into each gap, in `passes` passes (at most `size`)."""
        if not gaps:
            return []
        device = self.lane.decoder.device
        text = [[*gap.before, *[self.mask] * size, *gap.behind] for gap in gaps]
        lengths = torch.tensor([len(x) for x in text], device=device)
        tokens = torch.tensor([[x for one in text for x in one]], device=device)
        positions = torch.cat([torch.arange(len(x), device=device) for x in text])[None]
        of = torch.arange(len(gaps), device=device).repeat_interleave(lengths)
        visible = None if len(gaps) == 1 else (of[:, None] == of)[None]
        starts = lengths.cumsum(0) - lengths + torch.tensor([len(gap.before) for gap in gaps], device=device)
        places = starts[:, None] + torch.arange(size, device=device)  # [gaps, size]
        masked = torch.ones_like(places, dtype=torch.bool)
        for number in range(min(passes, size)):
            count = size * (number + 1) // min(passes, size) - size * number // min(passes, size)
            feed = Feed(
                tokens, positions, visible, places.flatten().tolist(), highest=max(map(len, text)) - 1
            )
            settled, best = self._most_confident(self.lane.forward(feed, "draft")[0], masked, count)
            self.lane.rollback()
            tokens[0, places.gather(1, settled)] = best.gather(1, settled)
            masked = masked.scatter(1, settled, False)
        return tokens[0, places].tolist()

    def _most_confident(self, logits: Tensor, masked: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Of logits [gaps * size, V]: the `count` surest masked places of each gap, int64 [gaps, count], and the likeliest
        token of every place, int64 [gaps, size]."""
        logits = logits.index_fill(-1, self._barred, -torch.inf)
        sure, best = logits.log_softmax(-1).max(-1)
        sure = sure.view(masked.shape).masked_fill(~masked, -torch.inf)
        return sure.topk(count).indices, best.view(masked.shape)
