"""GEAR: quantised keys and values are corrected by a few exact outliers and a low-rank matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.kv_compression import PackingCodec
from decodescope.engine.model.attention.attention import upcast_half
from decodescope.engine.model.stores.packed_store import Parts, Side

from .shared.groups import block_bits, dequantise_entries, group_size_conflict, quantise_entries


@component
class Gear(PackingCodec):
    """X is about Quant(X without outliers) + Sparse(outliers) + LowRank(residual).

    A vector is a key's channel along the tokens of a block, or a value's token along the channels of all KV heads. The smallest
    and the largest numbers of each vector are kept exactly. The vector's mean replaces them while the block is quantised as
    KIVI's. Per head, q p^T of rank r fits the residual by power iteration. Its last rounds are orthonormal, so the fit is a
    projection and never makes the whole error larger.

    A block is packed when `buffer` entries have accumulated. The prompt's blocks, of up to 512 entries, have their own rank.
    The outliers are restored last, so that they come out exactly. The authors' code (compress_function.py, gears_channelQ) adds
    the low rank to them as well, as `outlier_order` = first does. It also quantises to bits^2 - 1 instead of 2^bits - 1 steps,
    the same for 2 and 4 bits, and only simulates; here everything is really packed. Outliers are counted by each vector's own
    length, rounded up; the authors count a key's by the width of a token. Without sparsity this is GEAR-L.
    """

    title = "GEAR"
    source = "Kang et al. 2024, arXiv:2403.05527, algorithm 1; opengear-project/GEAR, Simulated/compress_function.py"

    bits: str = param(
        "2",
        choices=("2", "4"),
        unit="bits",
        help="precision of a quantised number; scales and minima are stored in addition",
    )
    group: int = param(
        64,
        low=4,
        high=128,
        step=4,
        unit="numbers",
        help="numbers that share a scale: along tokens for keys, along channels for values",
    )
    sparsity: float = param(
        0.02,
        low=0.0,
        high=1.0,
        step=0.01,
        unit="of the numbers",
        help="share of numbers stored exactly as outliers, half at each end of the range",
    )
    rank: int = param(
        4,
        low=0,
        high=128,
        unit="columns",
        help="rank of the low-rank correction of prompt blocks; 0: no correction",
    )
    decode_rank: int = param(
        2,
        low=0,
        high=128,
        unit="columns",
        help="rank of the low-rank correction of blocks packed later; 0: no correction",
    )
    power_iterations: int = param(
        3,
        low=1,
        high=10,
        unit="rounds",
        help="iterations of the power method that fits the low-rank correction",
    )
    buffer: int = param(
        64,
        low=4,
        high=1024,
        step=4,
        unit="entries",
        help="size of a block that is packed at once; until it is full it stays as it is",
    )
    outlier_order: str = param(
        "last",
        choices=("last", "first"),
        help="put outliers back after the low-rank correction (last) or before it (first)",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return group_size_conflict(self.name, "buffer", self.buffer, self.group) or super().refuse(
            method, spec
        )

    @property
    def pack_size(self) -> int:
        return self.buffer

    def block_bits(self, spec: ModelSpec, layer: int, bits: int, length: int) -> int:
        heads, width = spec.kv_at(layer), spec.head_dim
        exact = heads * width * self._outliers_per_end(length) + length * self._outliers_per_end(
            heads * width
        )
        low_rank = 2 * heads * (length + width) * self._rank(length, width)
        quantised = block_bits(spec, layer, self.group, int(self.bits), bits, length)
        return quantised + 2 * exact * (bits + 16) + low_rank * bits

    def _rank(self, length: int, width: int) -> int:
        """The rank of the correction of a block of `length` entries: only the prompt's blocks are longer than the buffer."""
        return min(self.rank if length > self.buffer else self.decode_rank, length, width)

    def encode(self, x: Tensor, side: Side) -> Parts:
        y = upcast_half(x)
        vectors = _to_vectors(y, side)
        ends = self._outliers_per_end(vectors.shape[-1])
        at = torch.cat([vectors.topk(ends, largest=largest).indices for largest in (False, True)], -1)
        values = vectors.gather(-1, at).to(x.dtype)
        inner = vectors.scatter(-1, at, vectors.mean(-1, keepdim=True).expand(at.shape))
        parts = quantise_entries(
            _from_vectors(inner, side, y.shape).to(x.dtype), side, self.group, int(self.bits)
        )
        parts |= {"at": at.to(torch.int16), "values": values}
        if rank := self._rank(x.shape[2], x.shape[3]):
            rough = dequantise_entries(parts, side, self.group, int(self.bits))
            left = y - upcast_half(self._restore_outliers(rough, parts, side))
            parts["q"], parts["p"] = (
                z.to(x.dtype) for z in factor_low_rank(left, rank, self.power_iterations)
            )
        return parts

    def decode(self, parts: Parts, side: Side) -> Tensor:
        x = dequantise_entries(parts, side, self.group, int(self.bits))
        if self.outlier_order == "first":
            x = self._restore_outliers(x, parts, side)
        if "q" in parts:
            x = (upcast_half(x) + upcast_half(parts["q"]) @ upcast_half(parts["p"]).mT).to(x.dtype)
        return x if self.outlier_order == "first" else self._restore_outliers(x, parts, side)

    def _outliers_per_end(self, length: int) -> int:
        """The number of values kept exactly at each end of a vector's range."""
        return math.ceil(self.sparsity * length / 2)

    def _restore_outliers(self, x: Tensor, parts: Parts, side: Side) -> Tensor:
        """x (float [B, H_kv, T, D]) with the outliers restored."""
        exact = _to_vectors(x, side).scatter(-1, parts["at"].long(), parts["values"])
        return _from_vectors(exact, side, x.shape)


def _to_vectors(x: Tensor, side: Side) -> Tensor:
    """Entries [B, H_kv, T, D] as vectors: keys [B, H_kv, D, T] along the tokens, values [B, T, H_kv * D] along channels."""
    return x.mT if side == "keys" else x.transpose(1, 2).flatten(2)


def _from_vectors(vectors: Tensor, side: Side, shape: torch.Size) -> Tensor:
    """The inverse of `_to_vectors`: [B, H_kv, T, D], the `shape` that the entries had."""
    return vectors.mT if side == "keys" else vectors.unflatten(2, (shape[1], shape[3])).transpose(1, 2)


def factor_low_rank(x: Tensor, rank: int, loops: int) -> tuple[Tensor, Tensor]:
    """Factor x (float [..., T, D]) into q [..., T, rank] and p [..., D, rank] by power iteration from a fixed start.

    q is orthonormal, and q p^T = q q^T x.
    """
    start = torch.rand(x.shape[-1], rank, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = start.to(x).expand(*x.shape[:-2], -1, -1)
    for left in reversed(range(loops)):
        p = torch.linalg.qr(p).Q if left == 0 else p
        q = x @ p
        q = torch.linalg.qr(q).Q if left == 0 else q
        p = x.mT @ q
    return q, p
