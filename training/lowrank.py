"""Low-rank deltas around the frozen matrices of a net, and learnt rows of its embedding, for training adapters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .net import Net


class LowRank(nn.Module):
    """x W^T + scale * (x A^T) B^T with W frozen.

    B begins at zero, so that an untrained one changes nothing (Hu et al. 2021, arXiv:2106.09685, section 4.1). `on` = False
    leaves W alone.
    """

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


class EmbeddingRows(nn.Module):
    """A frozen embedding in which some rows learn, both as input and, where it is tied, as output.

    They begin as they are; `on` = False leaves them so.
    """

    def __init__(self, frozen: nn.Embedding, ids: Sequence[int]) -> None:
        super().__init__()
        self.frozen = (frozen.weight.detach(),)
        self.ids = torch.tensor(ids)
        self.on = True
        self.rows = nn.Parameter(frozen.weight.detach()[self.ids].clone())

    @property
    def weight(self) -> Tensor:
        """[V, D]."""
        return self.frozen[0].index_copy(0, self.ids, self.rows) if self.on else self.frozen[0]

    def forward(self, ids: Tensor) -> Tensor:
        """[..., D] of ids int64 [...]."""
        return F.embedding(ids, self.weight)


def add_low_rank(
    net: Net, rank: int, alpha: float, seed: int, only: Collection[str] = (), rows: Sequence[int] = ()
) -> nn.ModuleDict:
    """Put a LowRank around the matrices of every layer of `net`, and let `rows` of its embedding learn.

    If `only` has names, only the matrices with these names get one. Returns these modules, by the name of their place ("/" for
    ".").
    """
    draw, made = torch.Generator().manual_seed(seed), nn.ModuleDict()
    for i, layer in enumerate(net.layers):
        for room in ("self_attn", "mlp"):
            holder = getattr(layer, room)
            for name, linear in list(holder.named_children()):
                if isinstance(linear, nn.Linear) and (not only or name in only):
                    around = LowRank(linear, rank, alpha / rank, draw)
                    setattr(holder, name, around)
                    made[f"model/layers/{i}/{room}/{name}"] = around
    if rows:
        made["model/embed_tokens"] = EmbeddingRows(net.model.embed_tokens, rows)
        net.model.register_module("embed_tokens", made["model/embed_tokens"])
    return made


def enable_deltas(deltas: nn.ModuleDict, on: bool) -> None:
    """Let the deltas count, or the base alone."""
    for delta in deltas.values():
        cast(LowRank | EmbeddingRows, delta).on = on


def adapter_tensors(deltas: nn.ModuleDict) -> dict[str, Tensor]:
    """The tensors of an adapter's file: A and B of each matrix, and rows of an embedding.

    Their names are the checkpoint's names of the weights.
    """
    return {
        f"{name.replace('/', '.')}.weight.{side}": tensor.detach()
        for name, delta in deltas.items()
        for side, tensor in delta.named_parameters()
    }
