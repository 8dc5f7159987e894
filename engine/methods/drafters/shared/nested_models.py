"""Nested models: a chain of drafted tokens in the target's first layers, each with its own depth so far."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.exits import ExitHeads
from decodescope.engine.model.layers.partial_pass import LazyLogits


class NestedModels:
    """The first layers of a lane's model, as models of several depths over one chain of pending rows.

    - tokens: of the rows, the first at `position`;  depths: layers that each row has run, never more than the row before it
    - states: float [1, 1, d_model] of each row, which enter the layer above its depth;  deepened: how often a row was deepened
      later
    - heads: trained exits that read the states; None: the last norm
    """

    def __init__(self, lane: Lane, position: int, heads: ExitHeads | None = None):
        self._lane = lane
        self._position = position
        self._heads = heads
        self.tokens: list[int] = []
        self.depths: list[int] = []
        self.states: list[Tensor] = []
        self.deepened = 0

    def push(self, token: int) -> None:
        """Append a row that has run no layer yet."""
        self.tokens.append(token)
        self.depths.append(0)

    def run(self, depth: int) -> Tensor:
        """Logits [V] of the model of the first `depth` layers behind the last row.

        Earlier rows with a smaller depth are run to this depth as well, from their stored states.
        """
        first = next(i for i, at in enumerate(self.depths) if at < depth)
        entries, count = self.depths[first:], len(self.depths) - first
        feed = Feed.causal_chain(
            self.tokens[first:], self._position + first, self._lane.decoder.device, logits="last"
        )
        if entries[-1]:
            feed.enter, feed.states = entries[-1], torch.cat(self.states[first:], 1)
            feed.entries = entries if entries[0] > entries[-1] else None
        rule = FixedExit(depth, self._heads)
        logits = self._lane.forward(feed, "draft", depth=rule)[0, -1]
        if self._heads is not None:  # its map is an extra product
            record = self._lane.passes[-1]
            record.tests = [depth]
            record.asks = "head"
            record.rank = self._heads.shape["rank"]
        self.states[first:] = rule.states.split(1, 1)
        self.depths[first:] = [depth] * count
        self.deepened += count - 1
        return logits


class FixedExit(AdaptiveDepth):
    """A fixed exit without a rule: a pass ends in front of `until`, answers from the state there, and leaves the layers above
    empty.

    states: float [1, T, d_model] of its rows, which enter that layer
    """

    skipped_kv = "absent"
    states: Tensor

    def __init__(self, until: int, heads: ExitHeads | None):
        self._until, self._heads = until, heads

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        if layer < self._until:
            return False
        if self._heads is not None:
            cast(LazyLogits, read).use_norm(partial(self._heads, layer=layer))
        self.states = x
        return True
