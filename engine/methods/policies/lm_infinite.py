"""LM-Infinite: attend to the start and to what is near, and to the start never from further away than that."""

from __future__ import annotations

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.policy import MOST, CachePolicy, evict_oldest, share
from decodescope.engine.model.cache import KVCache
from decodescope.engine.trace.parts import Zone


@component
class LMInfinite(CachePolicy):
    """Each token sees the first `start` entries and the `window` before it, in all layers and heads: a mask like a Lambda.

    What is near stands at its distance in the text. All of the start stands at one distance, `window + 1`, however far the
    text goes: its keys are read unrotated, the query rotated to that place. An entry of the start that is still near has its
    true distance. So no distance is larger than in a text that just fills the window, and the text may grow beyond the
    trained context. What left the middle is gone. Equal to full attention up to `window + 1` tokens.

    What a token sees is said by its distance alone, so that each row of a draft sees what it would see one by one: drafts
    change no text. The authors' mask frees no memory; here what no later token sees is not held. Their third branch, which
    lets some layers read a few entries of the middle, needs all of them and is not here.
    """

    title = "LM-Infinite"
    source = "Han et al. 2024, arXiv:2308.16137, section 4; Glaciohound/LM-Infinite, models/llama.py, lambda_attention.py"
    goes = "Once more than start and window are held the oldest behind the start leave, in all layers and KV heads alike."
    rope = "capped"
    bounded = True
    banded = True

    start: int = param(10, low=0, high=64, unit="entries", help="first entries kept for good, seen from one distance")
    window: int = param(246, low=1, high=MOST, unit="entries", help="newest entries that a token sees, itself aside")
    share: float = share()

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("start", "first", self.start), Zone("window", "newest", self.window)

    def divide(self, budget: int) -> None:
        self.window = max(1, budget - self.start)

    def compress(self, cache: KVCache) -> None:
        evict_oldest(cache, protect=self.start, keep=self.window)
