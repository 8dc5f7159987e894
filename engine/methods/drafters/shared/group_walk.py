"""GroupWalk: a FeatureWalk with a layer that guesses several tokens per pass, so that most levels need no pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.model.heads.drafting.parallelspec import ParallelSpecLayer

from .feature_walk import FeatureWalk

Way = tuple[int, ...]  # a group of the last pass, and the tokens since


class GroupWalk(FeatureWalk):
    """A pass guesses `k` levels.

    The first pass reads the text's last pair and k - 1 masks. When its k levels are used up, the next pass reads the nodes
    drafted since, each once, as pairs with their guessed features. It also reads masks behind every node that goes on. Pairs
    stay pending for later passes; only their own group sees the masks.
    """

    def __init__(self, ctx: Context, layer: ParallelSpecLayer, k: int):
        self.k, self._net = k, layer
        self._first: Tensor | None = None  # [k, d]: the output of the pass over the last pair of the text
        super().__init__(ctx, layer, ("final",))

    @property
    def passes(self) -> int:
        return self._grown

    def _output_after(self, features: Tensor, embedded: Tensor) -> Tensor:
        self._first = self._net.group(features, embedded, self.store, self.k)
        return self._first[:1]

    def read_root(self) -> Tensor | None:
        output = super().read_root()
        if self._first is not None:
            self._group = self._first[None]  # [G, k, d]: the output of the last pass
            # [G, m]: the pending pairs on the path to each group
            self._pairs = self._group.new_zeros(1, 0, dtype=torch.bool)
        self._ways: list[Way] = [(0,)]  # of the rows of the last level
        self._grown = 0
        return output

    def next_level(self, outputs: Tensor, above: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """The outputs [R, d] after `tokens`, one level further: token i follows row above[i] of the level before."""
        self._ways = [(*self._ways[row], token) for row, token in zip(above, tokens, strict=True)]
        self.level += 1
        if self.level % self.k == 0:
            self._pass()
        return self._group[[way[0] for way in self._ways], self.level % self.k]

    def _pass(self) -> None:
        """Read the pairs since the last pass, and masks behind the last of every way."""
        ways, k = self._ways, self.k
        nodes = sorted({way[:i] for way in ways for i in range(2, len(way) + 1)}, key=len)  # parents first
        row = {node: i for i, node in enumerate(nodes)}
        groups, places = [node[0] for node in nodes], [len(node) - 2 for node in nodes]
        P, R = len(nodes), len(ways)
        # of each new group
        rows = [[row[way], *range(P + i * (k - 1), P + (i + 1) * (k - 1))] for i, way in enumerate(ways)]
        own = torch.eye(P + R * (k - 1), dtype=torch.bool, device=self._group.device)
        for node, i in row.items():
            own[i, [row[node[:j]] for j in range(2, len(node))]] = True
        for pair, *masks in rows:
            for j, mask in enumerate(masks):
                own[mask] |= own[pair]
                own[mask, masks[:j]] = True
        sees = self._pairs[[*groups, *(way[0] for way in ways for _ in range(k - 1))]]
        visible = torch.cat([sees, own], 1)
        depth = [self.level - k + place for place in places] + [
            self.level - 1 + j for _ in ways for j in range(1, k)
        ]
        features, embedded = self._group[groups, places], self.embed([node[-1] for node in nodes])
        outputs = self._net.extend_leaves(features, embedded, R, k, self.store, depth, visible)
        self._group = outputs[torch.tensor(rows, device=outputs.device)]
        self._pairs = visible[[row[way] for way in ways]]
        self._ways, self._grown = [(i,) for i in range(R)], self._grown + 1
