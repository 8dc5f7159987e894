"""LowRankSum: a weight plus a product of two thin matrices, without a copy of the weight (LoRA, Hu et al. 2021)."""

from __future__ import annotations

from typing import Any, Self

import torch.nn.functional as F
from torch import Tensor

from .matrix import Matrix, copy_weight_to, linear, rows_from, unpack


class LowRankSum(Matrix):
    """W + B A. parts: a [rank, in], b [out, rank].

    base: W [out, in], plain, packed or a `Matrix`. It belongs to another layer, and its bytes are counted there.
    """

    base: Tensor

    @classmethod
    def around(cls, base: Tensor, a: Tensor, b: Tensor) -> Self:
        """The sum of `base` [out, in] and the product of b [out, rank] and a [rank, in]."""
        return cls.of((base.shape[0], base.shape[1]), a, {"a": a, "b": b}, base=base)

    @property
    def constants(self) -> dict[str, Any]:
        return {"base": self.base}

    def dense_weight(self) -> Tensor:
        return unpack(self.base) + self.parts["b"] @ self.parts["a"]

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return linear(x, self.base, bias) + F.linear(F.linear(x, self.parts["a"]), self.parts["b"])

    def rows_from(self, first: int) -> Tensor:
        return type(self).around(rows_from(self.base, first), self.parts["a"], self.parts["b"][first:])

    def copy_to(self, **where: Any) -> Tensor:
        a, b = (self.parts[name].to(**where) for name in "ab")
        return type(self).around(copy_weight_to(self.base, **where), a, b)
