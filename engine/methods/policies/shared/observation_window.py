"""Observation window: base of policies that score entries by the attention of the prompt's last tokens."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.policy import MOST
from decodescope.engine.decoding.bases.prefill_eviction import PrefillEviction
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.model.stores.cache import LayerStore
from decodescope.engine.trace.records.parts import Zone


@component
class ObservationWindow(PrefillEviction):
    """SnapKV's votes: the attention that an entry receives from the prompt's last `window` tokens.

    Votes are summed over these tokens, pooled over the entry's neighbours so that a cluster stays together, and averaged over
    the query heads of the group.
    """

    prompt_budget: int = param(
        48,
        low=1,
        high=MOST,
        unit="entries",
        help="prompt entries that each KV head keeps on average, besides the window",
    )
    window: int = param(
        16,
        low=1,
        high=512,
        unit="entries",
        help="last prompt tokens; their attention votes for the entries to keep, and they stay",
    )
    pool_radius: int = param(
        2,
        low=0,
        high=31,
        unit="entries",
        help="neighbours on each side whose votes are pooled with an entry's own; 0: no pooling",
    )
    pool: str = param(
        "mean",
        choices=("mean", "max"),
        help="how the votes of neighbours are pooled: their mean or their maximum",
    )

    @property
    def needs(self) -> Needs:
        return Needs(queries=self.window)

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("chosen", "chosen", self.prompt_budget), Zone("window", "newest", self.window)

    def set_budget(self, budget: int) -> None:
        self.window = min(self.window, budget // 2)
        self.prompt_budget = budget - self.window

    def entry_scores(self, layer: int, store: LayerStore, prompt: PromptAttention) -> Tensor:
        before = store.n - self.window
        votes = prompt.rows(layer, store, self.window)[..., :before].sum(3)  # [B, H_kv, g, n - w]
        return F.pad(self.pool_votes(votes).mean(2), (0, self.window))

    def pool_votes(self, votes: Tensor) -> Tensor:
        """Pool votes float [B, ..., m] over neighbours; beyond the ends there are zeros."""
        pool = F.avg_pool1d if self.pool == "mean" else F.max_pool1d
        return pool(votes.flatten(1, -2), 2 * self.pool_radius + 1, 1, self.pool_radius).view(votes.shape)
