"""Parts of a cache's change: entries stored in fewer bits, and extra entries next to those of the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Packed:
    """Entries that a codec packed: those at positions first to stop - 1, in every KV head of the layers that it packs.

    bytes: that they take in all layers, scales and whatever else included
    key_error, value_error: the largest absolute difference between a number of a key, or value, and what it is unpacked to
    notes: what the codec told of it besides
    """

    first: int
    stop: int
    bytes: int
    key_error: float
    value_error: float
    notes: dict[str, Any] | None = None


@dataclass
class Augmented:
    """What a context put beside the entries of the text, where no token stands; it is held for good.

    form:    "soft": trained inputs; "latent": vectors that a model made; "state": no entries, but what stands for many
    at:      tokens of the text that stand before it;  entries: of each layer and KV head;  origin: what it was made of
    """

    form: str
    at: int
    entries: int
    origin: str = ""
