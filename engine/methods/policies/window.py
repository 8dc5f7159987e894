"""Window: keep the newest entries."""

from __future__ import annotations

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.policy import MOST, CachePolicy, evict_oldest, share_knob
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.trace.records.parts import Zone


@component
class Window(CachePolicy):
    """Keep the last `window` entries of every layer and head, at their original positions.

    Exact while the text is no longer than the window; then the first tokens leave. Large trained models use them as attention
    sinks, so their text degenerates; the small shipped model hardly degrades. A prompt is read as a band: each token sees the
    `window` entries before it and itself. Through depth, older tokens still have an influence: the receptive field is layers
    times window.
    """

    title = "Window"
    source = "Beltagy et al. 2020, arXiv:2004.05150 (sliding window); the baseline of arXiv:2309.17453"
    banded = True
    strict = True

    goes = "Once more entries than the window are held the oldest leave, in all layers and KV heads alike."

    window: int = param(256, low=1, high=MOST, unit="entries", help="newest entries kept")
    budget_share: float = share_knob()

    @property
    def zones(self) -> tuple[Zone, ...]:
        return (Zone("window", "newest", self.window),)

    def set_budget(self, budget: int) -> None:
        self.window = budget

    def compress(self, cache: KVCache) -> None:
        evict_oldest(cache, protect=0, keep=self.window)
