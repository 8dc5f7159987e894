"""Window: keep the newest entries."""

from __future__ import annotations

from ..cache import KVCache
from ..component import component, param
from .base import CachePolicy, evict_oldest


@component
class Window(CachePolicy):
    """Keep the last `size` entries of every layer and head, at their original positions.

    Exact while the text is no longer than the window; then the first tokens leave, on which trained models lean as
    attention sinks, and the text falls apart. Through depth a token still hears of older ones: the receptive field is
    layers times window.
    """

    title = "Window"
    source = "Beltagy et al. 2020, arXiv:2004.05150 (sliding window); the baseline of arXiv:2309.17453"

    size: int = param(256, low=1, high=65_536, unit="entries", help="newest entries kept")

    def compress(self, cache: KVCache) -> None:
        evict_oldest(cache, protect=0, keep=self.size)
