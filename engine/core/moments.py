"""Moments: mean and spread of vectors, computed from parts of them. No torch at import time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """Mean and spread of `count` vectors: float32 [..., D] and float32 [..., D, D].

    The spread is the sum of the outer products of each vector's difference from the mean.
    """

    count: int
    mean: Tensor
    spread: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Moments:
        """The moments of x, float [..., T, D], T at least 1."""
        x = x.float()
        mean = x.mean(-2)
        off = x - mean[..., None, :]
        return cls(x.shape[-2], mean, off.mT @ off)

    def merge(self, other: Moments) -> Moments:
        """The moments of both together, without a difference of large sums (Chan, Golub, LeVeque 1979)."""
        count, off = self.count + other.count, other.mean - self.mean
        apart = off[..., :, None] * off[..., None, :] * (self.count * other.count / count)
        return Moments(count, self.mean + off * (other.count / count), self.spread + other.spread + apart)

    @property
    def covariance(self) -> Tensor:
        """float32 [..., D, D]."""
        return self.spread / self.count
