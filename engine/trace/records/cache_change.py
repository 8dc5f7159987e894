"""Parts of a cache's change: entries stored in fewer bits, and extra entries next to those of the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Packed:
    """Entries that KV compression packed: those at positions first to stop - 1, in every KV head of the layers that it packs.

    bytes: their size in all layers, including scales and everything else
    key_error, value_error: the largest absolute difference between a number of a key, or value, and what it is unpacked to
    notes: what the KV compression recorded in addition
    layers: those that it packs, if it leaves others as they are; None: all
    """

    first: int
    stop: int
    bytes: int
    key_error: float
    value_error: float
    notes: dict[str, Any] | None = None
    layers: list[int] | None = None


@dataclass
class Augmented:
    """What prompt compression added to the entries of the text, without tokens; it is held permanently.

    form:    "soft": trained inputs; "latent": vectors that a model made; "state": no entries, but a state that replaces many
    at:      tokens of the text before it;  entries: of each layer and KV head;  origin: what it was made of
    """

    form: str
    at: int
    entries: int
    origin: str = ""
