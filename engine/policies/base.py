"""CachePolicy: which KV entries a lane keeps."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ..cache import KVCache, LayerStore
from ..component import Component
from ..spec import ModelSpec


class CachePolicy(Component):
    """Base of every policy. It sees attention of committed rows only, and acts after a commit, never before a verdict.

    columns:  name -> value for a new entry; float32 statistics that travel with the entries
    lossless: whether the target's law is unchanged
    raw_keys: keys are stored unrotated and get their place in the cache as position
    bounded:  positions stay below a bound however long the text: the context limit does not apply
    """

    kind = "policy"
    columns: ClassVar[dict[str, float]] = {}
    lossless: ClassVar[bool] = False
    raw_keys: ClassVar[bool] = False
    bounded: ClassVar[bool] = False

    def begin(self, spec: ModelSpec, prompt: int) -> None:
        """Called once before the prompt of `prompt` tokens is read."""

    def observe_columns(self, layer: int, store: LayerStore, columns: Tensor) -> None:
        """columns: float32 [B, H_kv, n], attention of the committed prompt rows summed over queries and group."""

    def observe(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        """rows: float32 [B, H_kv, g, R, n], weights of R newly committed queries over the n committed entries."""

    def compress(self, cache: KVCache) -> None:
        """Called after each commit, and once after the prompt: may evict, keep or rewrite entries."""


def evict_oldest(cache: KVCache, protect: int, keep: int) -> None:
    """Bring every layer and head to the first `protect` positions and the newest `keep` entries.

    Layers and heads must hold the same positions, as they do where nothing else evicts.
    """
    first = cache.layers[0]
    gone = first.n - protect - keep
    if gone <= 0:
        return
    pos = first.positions()[0, 0]
    pos = pos.masked_fill(pos < protect, cache.length)
    oldest = pos.topk(gone, largest=False).indices.tolist()
    for store in cache.layers:
        store.evict_same(oldest)
