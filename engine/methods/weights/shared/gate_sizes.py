"""Gate sizes: the number of weights of heads and groups of columns, and which gates to close for a share of the weights."""

from __future__ import annotations

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec


class GateSizes:
    """The number of weights in the matrices of the layers that belong to each gate.

    A query head has its rows of the query projection and its columns of the output projection. A KV head, which goes with the
    last of its query heads, has keys and values. A column has three vectors.

    heads: float64 [L, H], 1 for an existing head;  columns: float64 [L, groups], how many each group has;  shapes: of both
    """

    def __init__(self, spec: ModelSpec, columns: int):
        self.spec, self.each = spec, columns
        there = torch.tensor(
            [[h < spec.heads_at(i) for h in range(spec.n_heads)] for i in range(spec.n_layers)]
        )
        wide = torch.tensor([[f < spec.ff_at(i) for f in range(spec.d_ff)] for i in range(spec.n_layers)])
        pad = -spec.d_ff % columns
        self.heads = there.double()
        self.columns = torch.nn.functional.pad(wide.double(), (0, pad)).unflatten(1, (-1, columns)).sum(2)
        self.shapes = tuple(self.heads.shape), tuple(self.columns.shape)
        ones = [torch.ones(x, dtype=torch.float64) for x in self.shapes]
        self.all = float(self._remaining_numbers(ones[0], ones[1]))

    def _remaining_numbers(self, head: Tensor, group: Tensor) -> Tensor:
        """The number of weights that stay, or its expectation if the gates [L, H] and [L, groups] are probabilities."""
        spec, a_head = self.spec, 2 * self.spec.head_dim * self.spec.d_model
        total: Tensor = a_head * (head * self.heads).sum() + 3 * spec.d_model * (group * self.columns).sum()
        for i in range(spec.n_layers):
            for own in head[i, : spec.heads_at(i)].split(list(spec.groups_at(i))):
                total = total + a_head * (1 - (1 - own).prod())
        return total

    def removed_share(self, head: Tensor, group: Tensor) -> Tensor:
        """The share of the weights that is removed."""
        return 1 - self._remaining_numbers(head, group) / max(self.all, 1.0)

    def expand_groups(self, group: Tensor) -> Tensor:
        """Expand gates [L, groups] to gates [L, F] of the columns."""
        return group.repeat_interleave(self.each, 1)[:, : self.spec.d_ff]

    def widths(self, head: Tensor, group: Tensor) -> list[tuple[float, float]]:
        """The number of heads and columns per layer that hard gates leave."""
        return [
            *zip((head * self.heads).sum(1).tolist(), (group * self.columns).sum(1).tolist(), strict=True)
        ]

    def close_gates(self, heads: Tensor, groups: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """Hard gates: the smallest values become 0, as many as bring the removed share nearest to `share`."""
        flat = torch.cat([heads.flatten(), groups.flatten()])
        there = torch.cat([self.heads.flatten(), self.columns.flatten()]) > 0
        gates, many = torch.ones_like(flat), self.heads.numel()

        def pair() -> tuple[Tensor, Tensor]:
            return gates[:many].view(self.shapes[0]).clone(), gates[many:].view(self.shapes[1]).clone()

        best, least = pair(), share
        for at in flat.argsort().tolist():
            if not there[at]:
                continue
            gates[at] = 0
            off = float(self.removed_share(*pair())) - share
            if abs(off) <= least:
                best, least = pair(), abs(off)
            if off > 0:
                break
        return best
