"""FFN-SkipLLM: attention always runs; feed-forward blocks that would change little are skipped."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.exit_rule import cosine_similarity
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import NOTHING, Skip
from decodescope.engine.trace.records.events import Exit


@component
class FfnSkip(AdaptiveDepth):
    """Skip feed-forward blocks after one that hardly changes the state.

    From the last block of the cold start on, measure the cosine between the states before and after each block. Once it reaches
    the threshold, skip the next `max_skipped_blocks` blocks outside the cold regions; their weights are not read. Attention
    runs in every layer, so no entry is missing. The first `warmup_tokens` tokens run whole. With several rows, the row with the
    smallest cosine decides.

    With `retest_interval` = 0 there is no further test once blocks were skipped. Otherwise, after every `retest_interval`
    skipped blocks, one block runs and is tested. The paper does not say which (secondary sources only: [recalled], as are the
    defaults of warmup and share). A threshold above 1 never skips a block. Lossy, without training.
    """

    title = "FFN-SkipLLM"
    source = "Jaiswal et al. 2024, arXiv:2404.03865, section 3 [recalled]"
    caution = "Leaving blocks out changes the text: the more of them, the more; above a third it breaks."
    tells: ClassVar[dict[str, Note]] = {
        "ffn": Note("set", "left out", "layer", "feed-forward blocks that the pass left out"),
        "sure": Note("series", "alike", what="cosine at the last test", line="threshold"),
        "threshold": Note("series", "bar", what="cosine from which blocks are left out"),
        "tests": Note("grid", "tests by layer", what="cosine behind each block that was asked"),
    }

    threshold: float = param(
        0.95,
        low=-1.0,
        high=1.01,
        step=0.005,
        help="cosine similarity from which the next blocks are skipped; above 1: none",
    )
    max_skipped_blocks: int = param(
        3, low=1, high=512, unit="blocks", help="maximum number of feed-forward blocks skipped in a pass"
    )
    warmup_tokens: int = param(
        25, low=0, high=65_536, unit="tokens", help="first tokens of the answer, which run all blocks"
    )
    cold_start: int = param(
        1, low=0, high=512, unit="layers", help="first layers, whose feed-forward blocks always run"
    )
    cold_end: int = param(
        1, low=0, high=512, unit="layers", help="last layers, whose feed-forward blocks always run"
    )
    retest_interval: int = param(
        0,
        low=0,
        high=64,
        unit="blocks",
        help="blocks skipped before the similarity is tested again; 0: no further test",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if spec.n_layers - max(self.cold_start, 1) - self.cold_end > 0:
            return None
        way = "smaller ones" if spec.n_layers > 1 else "adaptive_depth all_layers"
        return (
            f"{self.name}: {spec.name} has {spec.n_layers} layers, cold_start {self.cold_start} and cold_end {self.cold_end} "
            f"leave none between them; choose {way}."
        )

    def begin(self, spec: ModelSpec) -> None:
        self._layers = spec.n_layers
        self._tests: list[list[float]] = []
        self._closed: list[int] = []
        self._warm = True

    def plan(self, position: int, feed: Feed) -> Skip:
        self._tests = []
        self._closed = []
        self._warm = position < self.warmup_tokens
        return NOTHING

    def gate(self, layer: int, before: Tensor, after: Tensor) -> Collection[int]:
        end = self._layers - self.cold_end
        asked = self.cold_start - 1 <= layer < end - 1 and not self._warm
        room = self.max_skipped_blocks - len(self._closed)
        if not asked or not room or (self._closed and not self.retest_interval):
            return ()
        alike = float(cosine_similarity(before, after).min())
        self._tests.append([layer, alike, self.threshold])
        if alike < self.threshold:
            return ()
        closed = range(layer + 1, min(layer + 1 + min(room, self.retest_interval or room), end))
        self._closed += closed
        return closed

    def take_exit(self) -> Exit | None:
        return Exit(self._layers, "cosine", self._tests, asks="cosine", closed=self._closed)
