"""Window: keep the newest entries."""

from __future__ import annotations

from ..cache import KVCache
from ..component import component, param
from ..spec import ModelSpec
from .base import MOST, CachePolicy, entries, evict_oldest, share


@component
class Window(CachePolicy):
    """Keep the last `size` entries of every layer and head, at their original positions.

    Exact while the text is no longer than the window; then the first tokens leave. Large trained models lean on them as
    attention sinks, and their text falls apart; the small shipped one hardly does. Through depth a token still hears of
    older ones: the receptive field is layers times window.
    """

    title = "Window"
    source = "Beltagy et al. 2020, arXiv:2004.05150 (sliding window); the baseline of arXiv:2309.17453"

    size: int = param(256, low=1, high=MOST, unit="entries", help="newest entries kept")
    share: float = share()

    def begin(self, spec: ModelSpec, prompt: int) -> None:
        if self.share:
            self.size = entries(self, self.share, prompt)

    def compress(self, cache: KVCache) -> None:
        evict_oldest(cache, protect=0, keep=self.size)
