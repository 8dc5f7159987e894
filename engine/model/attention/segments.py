"""Segments: attention over pieces of what a query sees, and the sum that makes one answer of them.

A query's attention is a quotient of two sums over the entries that it sees. Entries may be cut into segments however one likes:
each gives its share of both sums, `merge_partial_attention` adds them, and the answer is that of one attention over
everything. So a segment may keep its entries in a form of its own (packed words that are decoded block by block, a prefix
that several sequences share, a linear term without entries) or want its queries rotated in another way; other code need not
know.

Split-K of flash-decoding is this property: Dao et al. 2023, pytorch.org/blog/flash-decoding; the sums with a running maximum:
Milakov and Gimelshein 2018, arXiv:1805.02867.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.kernels.choice import kernels_for

from .attention import TILE, AttentionRequest, soft_cap, upcast_half

# How a segment counts the distance between a query and its entries: in the text; in a cache with adjacent entries; never
# further than a cap; as one distance for all; or not at all. The difference is in the queries alone: an entry's key is
# rotated once.
RopeMode = Literal["original", "in_cache", "capped", "inserted", "unrotated"]

# gives the logarithm of the sum too
_FLASH = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)


class PartialAttention(NamedTuple):
    """What a segment contributes to its queries: both sums of attention, over its entries j with scores s_j and values v_j.

    numerator:   float [B, H_kv, g, T, D]: sum of exp(s_j - maximum) v_j
    denominator: float [B, H_kv, g, T]: sum of exp(s_j - maximum)
    maximum:     float [B, H_kv, g, T]: the largest score, or any number near it (the logarithm of the whole sum, then the
                 denominator is 1 and the numerator the segment's own answer; 0 for a term that is no exponential). -inf where
                 a row sees nothing here: both sums are 0 then
    weights:     float [B, H_kv, g, T, S]: the terms of the denominator by entry, where they were asked for

    Half types are summed in float32.
    """

    numerator: Tensor
    denominator: Tensor
    maximum: Tensor
    weights: Tensor | None = None

    def output(self) -> Tensor:
        """float [B, H_kv, g, T, D]: the answer, had the queries only what this part saw; 0 for a row that saw nothing."""
        return self.numerator / self.denominator.masked_fill(self.denominator == 0, 1)[..., None]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A piece of what the rows of a pass attend to, in one layer. It is made for each pass, or kept with the cache.

    mask:  bool [B or 1, H_kv or 1, T, S]: what each row sees of its S entries; [B or 1, H_kv or 1, g or 1, T, S] where the
           query heads of a group see different ones; None: everything
    rope:  the rotation of the queries that `attend` is given
    first: slot of the store at which its entries begin: weights go there. If two segments share slots, their weights
           are added; a row sees each entry in one of them
    slots: int64 [B, H_kv, S]: the slots of its entries, if they are not consecutive
    """

    mask: Tensor | None = None
    rope: RopeMode = "original"
    first: int = 0
    slots: Tensor | None = None

    def attend(
        self, q: Tensor, mask: Tensor | None, scale: float, cap: float | None = None, *, weights: bool = False
    ) -> PartialAttention:
        """The part of queries q (float [B, H_kv, g, T, D], rotated as `rope` says), which are all rows of a pass or some;
        `mask` is cut to them. Scores are the products times `scale`, softly capped at `cap`. weights: give them as well.

        A segment without entries (a linear term) gives weights of no width.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class DenseSegment(Segment):
    """A segment with plain keys and values: committed or pending rows of a store.

    k, v: float [B, H_kv, S, D], the keys rotated as `rope` wants them
    """

    k: Tensor
    v: Tensor

    def attend(
        self, q: Tensor, mask: Tensor | None, scale: float, cap: float | None = None, *, weights: bool = False
    ) -> PartialAttention:
        """Uses one kernel, if that returns the logarithm of its sum."""
        if cap is None and not weights and can_fuse(q, self.k):
            return _fused_partial_attention(q, self.k, self.v, mask, scale)
        return eager_partial_attention(q, self.k, self.v, mask, scale, cap, weights=weights)


def can_fuse(q: Tensor, k: Tensor) -> bool:
    """True if one kernel can do it: on a CPU, with entries to read, as rows, and without a gradient, which it only half has."""
    grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
    rows = k.stride(3) == 1  # for others the kernel gives nonsense
    if kernels_for(q, k) is not None:
        return False  # their kernels return the sums
    return _FLASH is not None and q.device.type == "cpu" and k.shape[2] > 0 and rows and not grad


def group_mask(mask: Tensor) -> Tensor:
    """A segment's mask, bool [B or 1, H_kv or 1, g or 1, T, S]."""
    return mask if mask.dim() == 5 else mask[:, :, None]


def eager_partial_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scale: float,
    cap: float | None = None,
    *,
    weights: bool = False,
) -> PartialAttention:
    """The part of queries q (float [B, H_kv, g, T, D]) over keys (float [B, H_kv, S, D]) and values, written out.

    Values may have another width: then the numerator has it too.
    """
    B, H, g, T, D = q.shape
    if (kernels := kernels_for(q, k, v)) is not None:
        total, maximum = q.new_empty(2, B, H, g, T, dtype=torch.float32).unbind(0)
        terms = q.new_empty(B, H, g, T, k.shape[2], dtype=torch.float32) if weights else None
        numerators = [
            kernels.attend(q, k, piece, mask, scale, cap, weights=terms, sums=(total, maximum))
            for piece in _pieces_of_width(v, D)
        ]
        numerator = numerators[0] if v.shape[3] == D else torch.cat(numerators, -1)[..., : v.shape[3]]
        return PartialAttention(numerator, total, maximum, terms)
    q = upcast_half(q)
    k = upcast_half(k)
    v = upcast_half(v)
    scores = soft_cap((q.reshape(B, H, g * T, D) @ k.mT).view(B, H, g, T, k.shape[2]).mul_(scale), cap)
    if mask is not None:
        scores = scores.masked_fill(~group_mask(mask), -torch.inf)
    maximum = scores.detach().amax(-1) if k.shape[2] else scores.new_full((B, H, g, T), -torch.inf)
    terms = (scores - maximum.masked_fill(maximum == -torch.inf, 0)[..., None]).exp()  # never -inf - -inf
    numerator = (terms.flatten(2, 3) @ v).view(B, H, g, T, v.shape[3])
    return PartialAttention(numerator, terms.sum(-1), maximum, terms if weights else None)


def _pieces_of_width(v: Tensor, width: int) -> list[Tensor]:
    """Values as the kernels take them: cut into pieces that are as wide as queries, the last one filled up with zeros."""
    if v.shape[3] == width:
        return [v]
    return [F.pad(x, (0, width - x.shape[3])) for x in v.split(width, -1)]


def _fused_partial_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
) -> PartialAttention:
    """`eager_partial_attention` by the kernel of scaled_dot_product_attention, the heads of a group as further rows of one
    head."""
    B, H, g, T, D = q.shape
    bias = None
    if mask is not None:
        rows = group_mask(mask).expand(-1, -1, g, -1, -1).flatten(2, 3)  # [b, h, g * T, S]
        bias = torch.zeros_like(rows, dtype=q.dtype).masked_fill_(~rows, -torch.inf)
    assert _FLASH is not None
    y, total = _FLASH(q.reshape(B, H, g * T, D), k, v, attn_mask=bias, scale=scale)
    total = total.view(B, H, g, T)
    sees = torch.ones_like(total)
    if mask is not None:  # the kernel gives a row that sees nothing the logarithm 0
        some = group_mask(mask).any(-1).expand_as(total)
        total, sees = total.masked_fill(~some, -torch.inf), some.to(total.dtype)
    return PartialAttention(upcast_half(y).view(B, H, g, T, D), sees, total)


def merge_partial_attention(parts: Sequence[PartialAttention]) -> PartialAttention:
    """The part of all these segments together; they may be in any order, cut anywhere, or empty. Numerators and denominators
    are first scaled to the same maximum, then added; weights stay with their segments."""
    # log of what each sums to
    heights = [part.maximum.detach() + part.denominator.detach().log() for part in parts]
    highest = torch.stack(heights).amax(0)
    # nobody saw anything: every factor is exp(-inf) then
    highest = highest.masked_fill(highest == -torch.inf, 0)
    factors = [(part.maximum - highest).exp() for part in parts]
    numerator = reduce(
        torch.add, (part.numerator * factor[..., None] for part, factor in zip(parts, factors, strict=True))
    )
    denominator = reduce(
        torch.add, (part.denominator * factor for part, factor in zip(parts, factors, strict=True))
    )
    return PartialAttention(numerator, denominator, highest.masked_fill(denominator == 0, -torch.inf))


def attend_segments(
    segments: Sequence[Segment],
    queries: Mapping[RopeMode, Tensor],
    scale: float,
    cap: float | None = None,
    *,
    slots: int = 0,
    wanted: AttentionRequest | None = None,
) -> Tensor:
    """Attention float [B, H_kv, g, T, D] of one layer over all its segments, in the queries' type.

    queries: by rotation, float [B, H_kv, g, T, D]; those that the segments name
    A probe gets the `wanted` weights over the `slots` of the layer's store.
    """
    q = next(iter(queries.values()))
    T, outputs = q.shape[3], []
    columns = wanted is not None and wanted.columns
    size = TILE if columns or (cap is not None and wanted is None) else T
    sums = q.new_zeros(*q.shape[:2], slots, dtype=torch.float32) if columns else None
    for at in range(0, T, size):
        tiles = {rope: x[:, :, :, at : at + size] for rope, x in queries.items()}
        masks = [None if s.mask is None else s.mask[..., at : at + size, :] for s in segments]
        parts = [
            s.attend(tiles[s.rope], mask, scale, cap, weights=wanted is not None)
            for s, mask in zip(segments, masks, strict=True)
        ]
        total = merge_partial_attention(parts) if len(parts) > 1 else parts[0]
        outputs.append(total.output().to(q.dtype))
        if wanted is not None:
            weights = _by_slot(segments, parts, total, slots)
            if sums is None:
                wanted.probe.rows[wanted.layer] = weights
            else:
                sums += weights.sum((2, 3))
    if wanted is not None and sums is not None:
        wanted.probe.columns[wanted.layer] = sums
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 3)


def _by_slot(
    segments: Sequence[Segment], parts: Sequence[PartialAttention], total: PartialAttention, slots: int
) -> Tensor:
    """float32 [B, H_kv, g, T, slots]: the weights of all parts, which with those of terms without entries sum to 1."""
    rows = total.denominator.new_zeros(*total.denominator.shape, slots, dtype=torch.float32)
    ground = total.maximum.masked_fill(total.maximum == -torch.inf, 0)
    for segment, part in zip(segments, parts, strict=True):
        assert part.weights is not None
        share = (part.maximum - ground).exp() / total.denominator.masked_fill(total.denominator == 0, 1)
        weights = part.weights * share[..., None]
        if segment.slots is None:
            rows[..., segment.first : segment.first + weights.shape[-1]] += weights
        else:
            rows.scatter_add_(
                4, segment.slots[:, :, None, None].expand(weights.shape), weights.to(rows.dtype)
            )
    return rows
