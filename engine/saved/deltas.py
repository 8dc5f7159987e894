"""Keys and values as small integers, in groups of tokens.

The first token of a group is stored as it is, the others as their difference from it.

CacheGen, Liu et al. 2024, arXiv:2310.07240, section 5.2. The bins are those of UChi-JCL/CacheGen (cachegen_basics.py), which
codes the tokens themselves. Groups of ten and anchors in 8 bits are cited from memory of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GROUP = 10  # tokens of a group, its anchor included
ANCHOR = 127  # steps of an anchor's largest number: 8 bits
# How fine differences are: bins of keys in the first, second and last third of the layers; of values in the first
# sixteenth, and behind it. Errors in early layers go through all that follow.
LEVELS = {
    "coarse": ((16, 16, 12), (16, 12)),
    "middle": ((32, 16, 16), (32, 16)),
    "fine": ((32, 32, 32), (32, 32)),
}


@dataclass(frozen=True)
class CacheShape:
    """Of a cache in a file: layers, entries, and channels (KV heads times their width); group: tokens of a group."""

    layers: int
    entries: int
    channels: int
    group: int = GROUP

    @property
    def anchors(self) -> int:
        """Number of groups; the last group may have fewer tokens."""
        return -(-self.entries // self.group)

    @property
    def differences(self) -> int:
        """Tokens that are no anchors."""
        return self.entries - self.anchors


@dataclass(frozen=True)
class CacheCodes:
    """A cache as integers.

    anchors: uint8 [L, 2, A, C], 0 to 254; differences: uint8 [L, 2, n - A, C], 0 to 2 steps; largest: float32 [L, 2, n], the
    number that the largest code of each token means, as numbers that 16 bits hold (bfloat16).
    """

    anchors: np.ndarray
    differences: np.ndarray
    largest: np.ndarray


def difference_steps(level: str, layers: int) -> np.ndarray:
    """int64 [L, 2]: steps from nothing to the largest difference, of keys and values: bins // 2 - 1."""
    keys, values = LEVELS[level]
    early = max(1, layers // 16)
    bins = [[keys[3 * i // layers], values[i >= early]] for i in range(layers)]
    return np.array(bins) // 2 - 1


def quantise_deltas(x: np.ndarray, shape: CacheShape, level: str) -> CacheCodes:
    """Codes of keys and values, float32 or float64 [L, 2, n, C].

    No number is off by more than half a step of its token's largest difference, `largest` over `difference_steps`. Differences
    are taken from the anchor as it is decoded, so errors do not add up.
    """
    fine = difference_steps(level, shape.layers)[:, :, None, None]
    lead, others = _anchor_places(shape)
    largest = np.empty(x.shape[:3], np.float32)
    anchors, largest[:, :, lead] = _round_to_codes(x[:, :, lead], np.full_like(fine, ANCHOR))
    back = _decode_codes(anchors, largest[:, :, lead], np.full_like(fine, ANCHOR), x.dtype)
    differences, largest[:, :, others] = _round_to_codes(
        x[:, :, others] - back[:, :, others // shape.group], fine
    )
    return CacheCodes(anchors, differences, largest)


def dequantise_deltas(
    codes: CacheCodes, shape: CacheShape, level: str, dtype: type = np.float32
) -> np.ndarray:
    """float [L, 2, n, C]: about what was quantised."""
    fine = difference_steps(level, shape.layers)[:, :, None, None]
    lead, others = _anchor_places(shape)
    x: np.ndarray = np.empty((shape.layers, 2, shape.entries, shape.channels), dtype)
    for i in range(shape.layers):  # what is worked out on the way takes as much as a layer does, not as all
        one = slice(i, i + 1)
        each = fine[i : i + 1]
        largest = codes.largest[i : i + 1]
        x[one, :, lead] = _decode_codes(
            codes.anchors[one], largest[:, :, lead], np.full_like(each, ANCHOR), dtype
        )
        x[one, :, others] = _decode_codes(codes.differences[one], largest[:, :, others], each, dtype)
        x[one, :, others] += x[one, :, lead][:, :, others // shape.group]
    return x


def to_bfloat16_bits(x: np.ndarray) -> np.ndarray:
    """float32 as the 16 bits that bfloat16 keeps, uint16; the lower bits of x must be zero."""
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def from_bfloat16_bits(bits: np.ndarray) -> np.ndarray:
    """float32: the numbers that 16-bit bfloat16 patterns encode."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _anchor_places(shape: CacheShape) -> tuple[np.ndarray, np.ndarray]:
    """The positions of the anchors, and of all others."""
    places = np.arange(shape.entries)
    return places[:: shape.group], places[places % shape.group > 0]


def _round_to_codes(x: np.ndarray, fine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes uint8 of x [L, 2, T, C] in `fine` steps [L, 2, 1, 1] on either side, and the largest number of each token.

    The latter is float32 [L, 2, T], rounded up to what 16 bits hold.
    """
    most = np.abs(x).max(-1).astype(np.float32) if x.size else np.zeros(x.shape[:3], np.float32)
    largest = _round_up(most)
    scale = np.where(largest > 0, largest, 1)[..., None].astype(x.dtype)
    return (np.rint(x / scale * fine) + fine).astype(np.uint8), largest


def _round_up(x: np.ndarray) -> np.ndarray:
    """float32 of at least x (float32, not negative) that 16 bits hold; x times 1.01 is more."""
    return from_bfloat16_bits(
        ((np.nextafter(x, np.float32(np.inf)).view(np.uint32) + np.uint32(0xFFFF)) >> np.uint32(16)) * (x > 0)
    )


def _decode_codes(
    codes: np.ndarray, largest: np.ndarray, fine: np.ndarray, dtype: type | np.dtype
) -> np.ndarray:
    """float [L, 2, T, C]: the numbers that the codes encode."""
    numbers: np.ndarray = (codes.astype(dtype) - fine.astype(dtype)) * (
        largest[..., None].astype(dtype) / fine.astype(dtype)
    )
    return numbers
