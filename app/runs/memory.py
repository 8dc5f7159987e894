"""Memory: what models and the caches of a run will take, told before they are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec

FREE_FOR_REST = 0.9  # of the memory that is free; the rest is for what runs beside
BYTES_A_TOKEN = 3  # of a prompt whose tokens cannot be counted yet


@dataclass(frozen=True)
class Estimate:
    """Bytes that are needed. weights: model -> bytes still to be read;  held: bytes of weights that are there already;
    cache: bytes of keys and values of `tokens` tokens, over all models;  free: bytes, None where the system does not say"""

    weights: Mapping[str, int]
    held: int
    cache: int
    tokens: int
    free: int | None

    @property
    def needed(self) -> int:
        """Bytes on top of those that are taken now."""
        return sum(self.weights.values()) + self.cache

    @property
    def fits(self) -> bool:
        """Whether that is free; where nobody knows, it is tried."""
        return self.fits_beside(0)

    def fits_beside(self, spare: int) -> bool:
        """Whether it is free once `spare` more bytes are."""
        return self.free is None or self.needed <= FREE_FOR_REST * (self.free + spare)

    @property
    def parts(self) -> str:
        """The sum and its parts, as words."""
        weights = sum(self.weights.values()) + self.held
        many = f"{self.tokens} token{'' if self.tokens == 1 else 's'}"
        return f"{short(weights + self.cache)}B: weights {short(weights)}B, cache of {many} {short(self.cache)}B"

    @property
    def sentence(self) -> str:
        """The parts, and what is free."""
        return self.parts + ("" if self.free is None else f"; {short(self.free)}B free")


def cache_bytes(spec: ModelSpec, tokens: int, itemsize: int) -> int:
    """Bytes of the cache of `tokens` tokens, whole pages as the engine takes them, up to the context of the model."""
    from decodescope.engine.model.cache import PAGE

    entries = min(tokens, spec.max_positions)
    return spec.kv_bytes(-(-entries // PAGE) * PAGE, itemsize)


def free() -> int | None:
    """Bytes that are free where models are loaded here."""
    import torch

    from decodescope.engine.load import free_bytes

    return free_bytes(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def bytes_each() -> int:
    """Bytes of one number where models are loaded here."""
    import torch

    return 2 if torch.cuda.is_available() else 4


def short(count: float) -> str:
    """A count with its thousands: 11.8 M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} "
