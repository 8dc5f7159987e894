"""LM-Infinite: attend to the first and the newest entries, with a limit on the distance of the first ones."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.policy import (
    MOST,
    CachePolicy,
    Deed,
    entries_from_share,
    evict_oldest,
    share_knob,
)
from decodescope.engine.model.forward.feed import AttentionSinks, Band, MiddleRead
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.model.stores.sparse_read import SparseChoice, SparseRead
from decodescope.engine.trace.records.parts import Zone


@component
class LMInfinite(CachePolicy):
    """Each token sees the first `sink_tokens` entries and the `window` before it, in all layers and heads: a mask like a
    Lambda.

    Near entries have their distance in the text. All sink entries have one distance, `window + 1`, however long the
    text is: their keys are read unrotated, and the query is rotated to that position. A sink that is still near
    has its true distance. So no distance is larger than in a text that just fills the window, and the text may grow beyond the
    trained context. Entries that leave the window are gone. It equals full attention up to `window + 1` tokens.

    Distance alone decides what a token sees. So each row of a draft sees what it would see one by one, and drafts change no
    text. The authors' mask frees no memory; this code drops entries that no later token sees.

    With `middle_top_k` above 0, everything is held, and memory grows with the text. In the layers from `first_middle_layer` on,
    each query head then reads a few more entries between sinks and window. This applies to the prompt's last token and all
    tokens after it, once there are enough entries. The entries are those with the largest scores, computed as if each were at
    distance `middle_distance`. To find them, all keys in between are multiplied, but only the values of the chosen ones are
    read. (The record and the cost model count such a layer as read in full.) The layers below read sinks and window alone; a
    model that has only these layers is refused. The authors do so for the last row of a pass, from layer 4 on, with 5 entries
    at half the window.
    """

    title = "LM-Infinite"
    source = "Han et al. 2024, arXiv:2308.16137, section 4; Glaciohound/LM-Infinite, models/llama.py, lambda_attention.py"
    goes = "Once more than start and window are held the oldest behind the start leave, in all layers and KV heads alike."
    rope = "capped"
    bounded = True
    banded = True

    sink_tokens: int = param(
        10,
        low=0,
        high=64,
        unit="entries",
        help="first entries, always kept; from far away they are read at one fixed distance",
    )
    window: int = param(
        246, low=1, high=MOST, unit="entries", help="newest entries that a token reads besides itself"
    )
    middle_top_k: int = param(
        0,
        low=0,
        high=MOST,
        unit="a query head",
        help="entries between sinks and window that are read as well; 0: they are evicted",
    )
    middle_distance: int = param(
        0,
        low=0,
        high=MOST,
        unit="tokens",
        help="distance at which middle entries are read; 0: half the window",
    )
    first_middle_layer: int = param(
        4, low=0, high=255, unit="layer", help="first layer that reads middle entries"
    )
    budget_share: float = share_knob()

    @property
    def does(self) -> frozenset[Deed]:  # type: ignore[override] # depends on a knob
        """The entries between sinks and window leave, or stay and are seldom read."""
        return frozenset({"select"}) if self.middle_top_k else frozenset({"evict"})

    @property
    def zones(self) -> tuple[Zone, ...]:
        return (
            ()
            if self.middle_top_k
            else (Zone("start", "first", self.sink_tokens), Zone("window", "newest", self.window))
        )

    @property
    def band(self) -> Band:
        return Band(self.sink_tokens, self.window)

    @property
    def sink_places(self) -> AttentionSinks:
        between = (
            MiddleRead(
                self.middle_top_k, self.middle_distance or max(1, self.window // 2), self.first_middle_layer
            )
            if self.middle_top_k
            else None
        )
        return AttentionSinks(self.sink_tokens, self.window + 1, between)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not self.middle_top_k or self.first_middle_layer < spec.n_layers:
            return None
        return (
            f"lm_infinite.first_middle_layer = {self.first_middle_layer}: {spec.name} has the layers 0 to {spec.n_layers - 1}, "
            "and none would read "
            "what is in the middle; choose one of them, or middle_top_k = 0."
        )

    def can_exceed_context(self, spec: ModelSpec, prompt: int) -> bool:
        """Also with a middle: the near entries and the distance of the middle must fit into the context."""
        near = (
            entries_from_share(self, self.budget_share, prompt)
            if self.budget_share
            else self.sink_tokens + self.window
        )
        return max(near, self.middle_distance if self.middle_top_k else 0) < spec.max_positions

    def describe(self) -> dict[str, Any]:
        kept = (
            "Nothing leaves: a token reads start and window, and in upper layers a few entries between them."
        )
        return super().describe() | ({"goes": kept} if self.middle_top_k else {})

    def set_budget(self, budget: int) -> None:
        self.window = max(1, budget - self.sink_tokens)

    def compress(self, cache: KVCache) -> None:
        if not self.middle_top_k:
            evict_oldest(cache, protect=self.sink_tokens, keep=self.window)

    def select(self, layer: int, store: LayerStore, q: Tensor, board: SparseRead) -> SparseChoice | None:
        """Read everything as long as nothing is further away than the window; after that `sink_places` decides."""
        return None
