"""The cache coprocessor: soft tokens, and low-rank changes of the model's own layers that read them over its cache."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from ..layers.layer import Layer
from ..layers.low_rank_sum import LowRankSum
from .base import Head

MATRICES = ("qkv", "out", "gate_up", "down")  # of a layer, as `Layer` names them


class Coprocessor(Head):
    """A second copy of the model's layers that writes latent vectors. Liu et al. 2024, arXiv:2412.17747.

    embeds: float [tokens, d], inputs of its first layer. The output behind each is one latent vector.
    Each layer's matrix W became W + B A, with A [rank, in] and B [out, rank]; q, k, v share one A, and so do gate and up. B
    begins at zero, so an untrained coprocessor is the model itself.
    """

    kind = "coprocessor"
    of_target = ("n_layers", "n_heads", "n_kv_heads", "head_dim", "d_ff")

    def __init__(
        self,
        d: int,
        tokens: int,
        rank: int,
        n_layers: int,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        d_ff: int,
    ) -> None:
        super().__init__(
            d=d, tokens=tokens, rank=rank, n_layers=n_layers, n_heads=n_heads, n_kv_heads=n_kv_heads,
            head_dim=head_dim, d_ff=d_ff,
        )  # fmt: skip
        width = n_heads * head_dim
        sizes = (width + 2 * n_kv_heads * head_dim, d), (d, width), (2 * d_ff, d), (d, d_ff)
        self.embeds = nn.Parameter(torch.empty(tokens, d))
        for name, (out, inner) in zip(MATRICES, sizes, strict=True):
            self.register_parameter(
                f"{name}_a", nn.Parameter(torch.randn(n_layers, rank, inner) * inner**-0.5)
            )
            self.register_parameter(f"{name}_b", nn.Parameter(torch.zeros(n_layers, out, rank)))

    def factors(self, name: str, layer: int) -> tuple[Tensor, Tensor]:
        """A [rank, in] and B [out, rank] of a matrix of `layer`; name: one of `MATRICES`."""
        return self.get_parameter(f"{name}_a")[layer], self.get_parameter(f"{name}_b")[layer]

    def adapt(self, layer: Layer, number: int) -> Layer:
        """The coprocessor's form of the model's layer `number`. It shares the weights of `layer`."""
        sums = {
            name: LowRankSum.around(getattr(layer, name), *self.factors(name, number)) for name in MATRICES
        }
        return replace(layer, **sums)
