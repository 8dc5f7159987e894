"""StreamingLLM: keep the attention sinks and the newest entries, and count positions inside the cache."""

from __future__ import annotations

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.policy import MOST, CachePolicy, evict_oldest, share_knob
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.trace.records.parts import Zone


@component
class StreamingLLM(CachePolicy):
    """Keep the first `sink_tokens` and the last `recent` entries, all layers and heads alike.

    Positions are counted in the cache (0, 1, ...), and the query comes after the last. So no distance exceeds sinks + recent +
    the pending entries, and the text may grow beyond the trained context. The authors keep unrotated keys and rotate all of
    them at every step. Here a key is rotated once, to its position in the text, and the query is rotated twice. For the window
    it is rotated to its position in the text; only the distance counts there, and it is the same in text and cache. For the
    sinks it is rotated to its position in the cache. Entries that left the middle are gone: the method does not extend the
    memory, it only keeps long texts stable. A prompt is read in the same way, as if token by token. Each token sees the sinks,
    the `recent` entries before it and itself, and memory is that of the budget and a chunk. The authors' demo reads a prompt
    densely and trims around it.

    With a `budget_share`, sinks and recent entries together are that share of the prompt's length; the number of sinks does not
    change.
    """

    title = "StreamingLLM"
    source = "Xiao et al. 2024, arXiv:2309.17453, section 3.2"
    goes = "Once more than sinks and window are held the oldest behind the sinks leave, in all layers and KV heads alike."
    rope = "in_cache"
    bounded = True
    banded = True
    strict = True

    sink_tokens: int = param(
        4, low=0, high=64, unit="entries", help="first entries, always kept (attention sinks)"
    )
    recent: int = param(252, low=1, high=MOST, unit="entries", help="newest entries, always kept")
    budget_share: float = share_knob()

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("sinks", "first", self.sink_tokens), Zone("window", "newest", self.recent)

    def set_budget(self, budget: int) -> None:
        self.recent = max(1, budget - self.sink_tokens)

    def compress(self, cache: KVCache) -> None:
        evict_oldest(cache, protect=self.sink_tokens, keep=self.recent)
