"""Linear: a segment without entries, the state that is left of an infinitely long prefix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import upcast_half
from .segments import PartialAttention, Segment


def feature_map(x: Tensor, scale: float) -> Tensor:
    """phi: ELU(x * sqrt(scale)) + 1 of queries or keys x float [..., D], all positive. phi(q) . phi(k) replaces the
    exponential of their score, q . k * scale."""
    return F.elu(x * scale**0.5) + 1


@dataclass(frozen=True, kw_only=True)
class LinearSegment(Segment):
    """The contribution of entries i with keys k_i and values v_i to a query, with phi(q) . phi(k_i) instead of exponentials:
    phi(q) Z to the numerator and phi(q) . k to the denominator, with Z = sum of phi(k_i) v_i^T and k = sum of phi(k_i).
    The size of Z and k does not depend on the number of entries (Liang et al. 2024, arXiv:2406.14036, algorithm 1;
    ChristianYang37/chiwun, src/NTK-Attention/ntk_attn_demo.py).

    z: float [H_kv, g, D, D], Z of every query head
    k: float [H_kv, g, D]; its absolute value counts, so that no denominator is negative. With zeros in both nothing is added
    """

    z: Tensor
    k: Tensor

    def attend(
        self, q: Tensor, mask: Tensor | None, scale: float, cap: float | None = None, *, weights: bool = False
    ) -> PartialAttention:
        """A cap is for scores, and here are none; weights have no width. In float32, float64 where the queries are."""
        phi = feature_map(upcast_half(q), scale)
        numerator = phi @ self.z.to(phi.dtype)
        denominator = (phi @ self.k.to(phi.dtype).abs()[..., None]).squeeze(-1)
        none = phi.new_zeros(*phi.shape[:4], 0) if weights else None
        return PartialAttention(numerator, denominator, torch.zeros_like(denominator), none)
