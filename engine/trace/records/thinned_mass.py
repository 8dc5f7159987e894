"""Thinned mass: a map of attention mass that is too large to keep whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..values.limits import TraceError
from ..values.numbers import EPS, validate_array, validate_counts, validate_range

POSITIONS = 1 << 24  # of a thinned map; a record that claims more is refused before its blocks are spread
SHADES = (
    254  # steps of the scale on which a map keeps a share: 1 + SHADES * sqrt(share), 0 where nothing is held
)


@dataclass
class ThinnedMass:
    """Accumulated attention in fewer numbers than `mass` would take: the heaviest entries of each KV head one by one, and the
    mean of all others in each block of neighbouring positions. Mean times the block's other held entries is their sum.

    n:      positions of the text;  block: positions of a block, of which the last one may hold fewer
    heavy:  int32 [L, H_kv, K] positions of the heaviest entries, ascending; -1 pads where fewer are held
    shares: uint8 [L, H_kv, K], the mass of each of them as `mass` writes it; 0 where `heavy` is padded
    means:  uint8 [L, H_kv, B] of the other held entries of each block: 0 if it holds none, else 1 + 254 * sqrt(mean / largest
            mean of the layer)
    largest: float32 [L], the largest mean of each layer as a share of the layer's largest entry
    """

    n: int
    block: int
    heavy: np.ndarray
    shares: np.ndarray
    means: np.ndarray
    largest: np.ndarray

    def relative(self, held: np.ndarray | None = None) -> np.ndarray:
        """float64 [L, H_kv, n]: the mass of each position, as a share of the layer's largest; an entry outside `heavy` has the
        mean of its block. held: bool [L, H_kv, n]; without it, positions of a block that were evicted have its mean too."""
        means = largest_share(self.means) * self.largest[:, None, None].astype(np.float64)
        spread: np.ndarray = np.repeat(means, self.block, 2)[..., : self.n]
        layer, head, k = (self.heavy >= 0).nonzero()
        spread[layer, head, self.heavy[layer, head, k]] = largest_share(self.shares)[layer, head, k]
        masked: np.ndarray = spread if held is None else spread * held
        return masked

    def whole(self, held: np.ndarray | None = None) -> np.ndarray:
        """uint8 [L, H_kv, n]: `relative`, written as `mass` is."""
        there = np.repeat(self.means > 0, self.block, 2)[..., : self.n]
        layer, head, k = (self.heavy >= 0).nonzero()
        there[layer, head, self.heavy[layer, head, k]] = True
        shown: np.ndarray = np.rint(1 + SHADES * np.sqrt(self.relative())).astype(np.uint8) * there
        return shown if held is None else shown * held


def largest_share(mass: np.ndarray) -> np.ndarray:
    """float64: the shares of the largest that numbers of a map stand for; 0 where nothing is held."""
    share: np.ndarray = (np.maximum(mass.astype(np.float64) - 1, 0) / SHADES) ** 2
    return share


def thin_mass(shares: np.ndarray, held: np.ndarray, room: int) -> ThinnedMass | None:
    """The thinned map, in at most `room` numbers: half of them for blocks, the others for the heaviest entries and their
    positions. None if the layers and KV heads alone are too many.

    shares: float64 [L, H_kv, n], each entry's mass as a share of its layer's largest; held: bool [L, H_kv, n]
    """
    layers, heads, n = shares.shape
    rows = layers * heads
    most = room // (2 * rows) if rows else 0
    if not most or not n:
        return None
    block = max(2, -(-n // most))
    blocks = -(-n // block)
    kept = min(int(held.sum(2).max()), (room - rows * blocks) // (2 * rows))
    heaviest = np.argpartition(np.where(held, shares, -1.0), n - kept, 2)[..., n - kept :] if kept else None
    heavy = np.zeros((layers, heads, 0), np.int64) if heaviest is None else heaviest
    there = np.take_along_axis(held, heavy, 2)
    heavy = np.sort(np.where(there, heavy, -1), axis=2)
    there = heavy >= 0
    at = np.maximum(heavy, 0)
    written = np.floor(1 + SHADES * np.sqrt(np.take_along_axis(shares, at, 2))) * there
    others = held.copy()
    layer, head, k = there.nonzero()
    others[layer, head, heavy[layer, head, k]] = False
    padded = ((0, 0), (0, 0), (0, blocks * block - n))
    shape = (layers, heads, blocks, block)
    sums = np.pad(np.where(others, shares, 0.0), padded).reshape(shape).sum(3)
    counts = np.pad(others, padded).reshape(shape).sum(3)
    means = sums / np.maximum(counts, 1)
    largest = means.max((1, 2)).astype(np.float32)
    scaled = means / np.maximum(largest[:, None, None].astype(np.float64), 1e-30)
    shades = np.rint(1 + SHADES * np.sqrt(np.minimum(scaled, 1.0))) * (counts > 0)
    return ThinnedMass(
        n, block, heavy.astype(np.int32), written.astype(np.uint8), shades.astype(np.uint8), largest
    )


def validate_thinned(thinned: ThinnedMass, where: str) -> None:
    """Refuse maps whose parts do not fit together. Raises TraceError."""
    validate_counts([thinned.n, thinned.block], where)
    for name, kinds, axes in (("heavy", "i", 3), ("shares", "u", 3), ("means", "u", 3), ("largest", "f", 1)):
        validate_array(getattr(thinned, name), f"{where}.{name}", axes, kinds)
    validate_range(thinned.heavy, -1, thinned.n - 1, f"{where}.heavy")
    validate_range(thinned.largest, 0, 1 + EPS, f"{where}.largest")
    layers, heads, blocks = thinned.means.shape
    positions = layers * heads * thinned.n
    if thinned.block < 1 or positions > POSITIONS or blocks != -(-thinned.n // thinned.block):
        raise TraceError(
            f"{where} has {blocks} blocks of {thinned.block} in {layers} x {heads} rows of {thinned.n} positions: a block for "
            f"each stretch is due, and at most {POSITIONS:,} positions in all"
        )
    if thinned.heavy.shape != thinned.shares.shape or thinned.heavy.shape[:2] != (layers, heads):
        raise TraceError(
            f"{where} has heavy entries of other layers and KV heads than its blocks, or without shares"
        )
    if thinned.largest.shape != (layers,):
        raise TraceError(f"{where}.largest has {len(thinned.largest)} numbers for {layers} layers")
