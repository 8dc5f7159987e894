"""Low-rank deltas around the frozen matrices of a net, for training adapters."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from net import Net
from torch import Tensor, nn


class LowRank(nn.Module):
    """x W^T + scale * (x A^T) B^T with W frozen. B begins at zero, so that an untrained one changes nothing (Hu et al. 2021,
    arXiv:2106.09685, section 4.1). `on` = False leaves W alone."""

    def __init__(self, frozen: nn.Linear, rank: int, scale: float, draw: torch.Generator) -> None:
        super().__init__()
        self.frozen = (frozen.weight.detach(),)  # in a tuple, so that it is no parameter of what learns
        self.scale, self.on = scale, True
        rows, columns = frozen.weight.shape
        self.A = nn.Parameter(torch.randn(rank, columns, generator=draw) * columns**-0.5)
        self.B = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, x: Tensor) -> Tensor:
        """[..., out] of x [..., in]."""
        y = F.linear(x, *self.frozen)
        return y + self.scale * F.linear(F.linear(x, self.A), self.B) if self.on else y


def wrapped(net: Net, rank: int, alpha: float, seed: int) -> nn.ModuleDict:
    """Put a LowRank around every matrix of every layer of `net`; these, by the name of the matrix's place ("/" for ".")."""
    draw, made = torch.Generator().manual_seed(seed), nn.ModuleDict()
    for i, layer in enumerate(net.model.layers):
        for room in ("self_attn", "mlp"):
            holder = getattr(layer, room)
            for name, linear in list(holder.named_children()):
                if isinstance(linear, nn.Linear):
                    around = LowRank(linear, rank, alpha / rank, draw)
                    setattr(holder, name, around)
                    made[f"model/layers/{i}/{room}/{name}"] = around
    return made


def switched(deltas: nn.ModuleDict, on: bool) -> None:
    """Let the deltas count, or the base alone."""
    for delta in deltas.values():
        delta.on = on


def stored(deltas: nn.ModuleDict) -> dict[str, Tensor]:
    """The tensors of an adapter's file: A and B of each matrix, by the checkpoint's name of its weight."""
    return {
        f"{name.replace('/', '.')}.weight.{side}": getattr(delta, side).detach()
        for name, delta in deltas.items()
        for side in "AB"
    }
