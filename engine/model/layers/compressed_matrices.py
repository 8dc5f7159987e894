"""Matrices in fewer bytes: rows of int8, groups of 4 bits, codes of few bits, and N of every M.

    Int8     w = q s                 q int8, s a number a row                          8 + b / in bits a weight
    Int4     w = (q - 8) s + z       q in 0..15, s and z a group of a row              4 + 2 b / group
    Codes    w = q s + z             q in 0..2^k - 1, the same                         k + 2 b / group
    Sparse   w or 0                  N of every M in a row, and their places           (b + log2 M, rounded up) N / M

b: bits of the model's type, which s, z and what Sparse keeps have. Int8 and Int4 have an operator on the CPU, which reads
them as they are stored. Without one (another device, another type, a shape that it does not take) the numbers are made for
each product, as those of Codes and Sparse always are: fewer bytes, but no speed. The same happens where an operator would
be slower: in other types than bfloat16, and where Int8 multiplies many rows (docs/model.md has the figures).
"""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.kernels.choice import kernels_in_use
from decodescope.engine.kernels.formats import RUN, PackedRows

from .matrix import Matrix

# the type in which the operators pay: in others they take ten times as long as the plain way
BY_OPERATOR = (torch.bfloat16,)
ROWS = 16  # above this many the operator of Int8 is slower than the plain way
GROUPS = (32, 64, 128, 256)  # of the operator of Int4


def _has_operator(name: str, like: Tensor) -> bool:
    """True if this build has the operator `name` for numbers like these, and it pays."""
    return like.device.type == "cpu" and like.dtype in BY_OPERATOR and hasattr(torch.ops.aten, name)


def _int4_order(out: int, group: int, like: Tensor) -> str:
    """How an `Int4Matrix` of so many rows and numbers a group, whose scales are like these, keeps its numbers."""
    if kernels_in_use(like.dtype, like.device) == "rows" and group % RUN == 0 and not group & group - 1:
        return "halves"
    fits = group in GROUPS and out % 16 == 0 and _has_operator("_weight_int4pack_mm_for_cpu", like)
    return "operator" if fits else "pairs"


def _needs_gradient(x: Tensor) -> bool:
    return x.requires_grad and torch.is_grad_enabled()  # the operators have no gradient


def _add_bias(y: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    """y [rows, out], as a product of x [..., in], plus bias."""
    y = y.view(*x.shape[:-1], y.shape[-1])
    return y if bias is None else y.add_(bias)


class Int8Matrix(Matrix):
    """Rows of int8 with a scale each. parts: q int8 [out, in], scale [out]."""

    @classmethod
    def from_codes(cls, q: Tensor, scale: Tensor) -> Self:
        """Of q int8 [out, in] and scale [out]."""
        return cls.of((q.shape[0], q.shape[1]), scale, {"q": q.contiguous(), "scale": scale.contiguous()})

    @property
    def scale_group_size(self) -> int:
        return self.shape[1]

    def dense_weight(self) -> Tensor:
        return self.parts["q"].to(self.dtype) * self.parts["scale"][:, None]

    def packed_rows(self) -> PackedRows | None:
        return None if self.shape[1] % RUN else PackedRows("W8", self.parts["q"], self.parts["scale"])

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        few = len(rows) <= ROWS and not self.shape[1] % 32 and not _needs_gradient(x)
        if not few or not _has_operator("_weight_int8pack_mm", self.parts["scale"]):
            return super().product(x, bias)
        return _add_bias(
            torch.ops.aten._weight_int8pack_mm(rows, self.parts["q"], self.parts["scale"]), x, bias
        )

    def rows_from(self, first: int) -> Int8Matrix:
        return Int8Matrix.from_codes(self.parts["q"][first:], self.parts["scale"][first:])


class Int4Matrix(Matrix):
    """Groups of 4-bit numbers. parts: q uint8 [out, in / 2], two numbers a byte; of [in / group, out, 2] scale and offset.

    group: consecutive inputs that share both
    order: of the numbers of a row: "operator", as torch's operator has them; "halves", as the kernels read them, of each 32 the
           first 16 in the lower halves of 16 bytes; "pairs", two neighbours in a byte
    """

    group: int
    order: str

    @classmethod
    def from_codes(cls, q: Tensor, scale: Tensor, zero: Tensor) -> Self:
        """Of q in 0..15 [out, in], scale and zero [out, in / group]."""
        out, inner = q.shape
        group = inner // scale.shape[1]
        order, q = _int4_order(out, group, scale), q.to(torch.uint8)
        if order == "operator":
            kept = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.to(torch.int32).contiguous(), 1)
        elif order == "halves":
            halves = q.unflatten(1, (-1, 2, RUN // 2))
            kept = (halves[:, :, 0] | halves[:, :, 1] << 4).flatten(1)
        else:
            wide = F.pad(q, (0, inner % 2))
            kept = wide[:, ::2] | wide[:, 1::2] << 4
        pair = torch.stack([scale, zero], -1).transpose(0, 1).contiguous()
        return cls.of((out, inner), scale, {"q": kept, "pair": pair}, group=group, order=order)

    @property
    def constants(self) -> dict[str, Any]:
        return {"group": self.group, "order": self.order}

    def packed_rows(self) -> PackedRows | None:
        return PackedRows("W4", *self.parts.values()) if self.order == "halves" else None

    @property
    def scale_group_size(self) -> int:
        return self.group

    def dense_weight(self) -> Tensor:
        scale, zero = (x[..., None] for x in self.parts["pair"].transpose(0, 1).unbind(-1))
        q = self.numbers().to(self.dtype).unflatten(1, (-1, self.group)) - 8
        # rounded once, and no product of its own that could overflow
        return torch.addcmul(zero, q, scale).flatten(1)

    def numbers(self) -> Tensor:
        """q uint8 [out, in]. What the operator has put in its own order it puts back, as products with unit vectors and with
        scale 1 and offset 8."""
        (out, inner), q = self.shape, self.parts["q"]
        if self.order == "halves":
            halves = q.unflatten(1, (-1, RUN // 2))
            return torch.stack([halves & 15, halves >> 4], 2).flatten(1)
        if self.order == "pairs":
            return torch.stack([q & 15, q >> 4], -1).flatten(1)[:, :inner]
        unit = torch.eye(inner, dtype=torch.bfloat16)  # in which they are exact
        pair = torch.tensor([1.0, 8.0], dtype=unit.dtype).expand(inner // self.group, out, 2).contiguous()
        q_in_order: Tensor = (
            torch.ops.aten._weight_int4pack_mm_for_cpu(unit, q, self.group, pair).t().round().to(torch.uint8)
        )
        return q_in_order

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.order != "operator" or _needs_gradient(x):
            return super().product(x, bias)
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        q, pair = (self.parts[name] for name in ("q", "pair"))
        return _add_bias(torch.ops.aten._weight_int4pack_mm_for_cpu(rows, q, self.group, pair), x, bias)

    def rows_from(self, first: int) -> Int4Matrix:
        scale, zero = self.parts["pair"].transpose(0, 1)[first:].unbind(-1)
        return Int4Matrix.from_codes(self.numbers()[first:], scale, zero)

    def copy_to(self, **where: Any) -> Int4Matrix:
        scale, zero = (x.to(**where) for x in self.parts["pair"].transpose(0, 1).unbind(-1))
        return Int4Matrix.from_codes(self.numbers().to(scale.device), scale, zero)


class CodeMatrix(Matrix):
    """Groups of numbers of k bits. parts: planes uint8 [k, out, in / 8], bit i of each number, eight a byte; scale and zero
    [out, in / group]."""

    group: int

    @classmethod
    def from_codes(cls, q: Tensor, scale: Tensor, zero: Tensor, k: int) -> Self:
        """Of q in 0..2^k - 1 [out, in], scale and zero [out, in / group]."""
        parts = {"planes": pack_bit_planes(q, k), "scale": scale.contiguous(), "zero": zero.contiguous()}
        return cls.of((q.shape[0], q.shape[1]), scale, parts, group=q.shape[1] // scale.shape[1])

    @property
    def constants(self) -> dict[str, Any]:
        return {"group": self.group}

    @property
    def scale_group_size(self) -> int:
        return self.group

    @property
    def k(self) -> int:
        """Bits of a code."""
        return len(self.parts["planes"])

    def numbers(self) -> Tensor:
        """q uint8 [out, in]."""
        return unpack_bit_planes(self.parts["planes"], self.shape[1])

    def dense_weight(self) -> Tensor:
        q = self.numbers().to(self.dtype).unflatten(1, (-1, self.group))
        return torch.addcmul(self.parts["zero"][..., None], q, self.parts["scale"][..., None]).flatten(1)

    def rows_from(self, first: int) -> CodeMatrix:
        scale, zero = self.parts["scale"][first:], self.parts["zero"][first:]
        return CodeMatrix.from_codes(self.numbers()[first:], scale, zero, self.k)


class SparseMatrix(Matrix):
    """N of every M numbers of a row, the others zero. parts: values [out, in N / M]; planes of their places in 0..M - 1."""

    m: int

    @classmethod
    def from_values(cls, values: Tensor, places: Tensor, m: int) -> Self:
        """Of values [out, groups, N] and their places [out, groups, N] in 0..m - 1, ascending."""
        out, groups, _ = values.shape
        kept = {
            "values": values.flatten(1).contiguous(),
            "planes": pack_bit_planes(places.flatten(1), max(1, (m - 1).bit_length())),
        }
        return cls.of((out, groups * m), values, kept, m=m)

    @property
    def constants(self) -> dict[str, Any]:
        return {"m": self.m}

    def dense_weight(self) -> Tensor:
        values = self.parts["values"].unflatten(1, (self.shape[1] // self.m, -1))
        places = (
            unpack_bit_planes(self.parts["planes"], self.parts["values"].shape[1]).view(values.shape).long()
        )
        dense: Tensor = values.new_zeros(*values.shape[:2], self.m).scatter_(2, places, values).flatten(1)
        return dense

    def rows_from(self, first: int) -> SparseMatrix:
        values = self.parts["values"]
        places = unpack_bit_planes(self.parts["planes"], values.shape[1])[first:]
        shape = (len(places), self.shape[1] // self.m, -1)
        return SparseMatrix.from_values(values[first:].view(shape), places.view(shape), self.m)


def pack_bit_planes(q: Tensor, k: int) -> Tensor:
    """Numbers in 0..2^k - 1 [out, n] as uint8 [k, out, n / 8, rounded up]: bit i of eight of them a byte."""
    wide = F.pad(q.to(torch.uint8), (0, -q.shape[1] % 8)).unflatten(1, (-1, 8))
    at = torch.arange(8, dtype=torch.uint8, device=q.device)
    return torch.stack([((wide >> i & 1) << at).sum(-1, dtype=torch.uint8) for i in range(k)])


def unpack_bit_planes(planes: Tensor, n: int) -> Tensor:
    """The inverse of `pack_bit_planes`: uint8 [out, n]."""
    at = torch.arange(8, dtype=torch.uint8, device=planes.device)
    ones = (planes[..., None] >> at & 1).flatten(2)[..., :n]
    return sum((plane << i for i, plane in enumerate(ones)), torch.zeros_like(ones[0]))
