"""Observed: policies that ask the last tokens of a prompt what they look at."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.once import Once
from decodescope.engine.decoding.bases.policy import MOST
from decodescope.engine.decoding.values.prompt import Prompt
from decodescope.engine.model.stores.cache import LayerStore
from decodescope.engine.trace.records.parts import Zone


@component
class Observed(Once):
    """SnapKV's votes: what an entry draws of the attention of the prompt's last `window` tokens, added up over them and pooled
    over its neighbours, so that a cluster stays together; then the mean over the query heads of the group."""

    chosen: int = param(
        48, low=1, high=MOST, unit="entries", help="entries of the prompt kept for the votes that they get"
    )
    window: int = param(
        16, low=1, high=512, unit="entries", help="last tokens of the prompt, which vote and stay"
    )
    reach: int = param(2, low=0, high=31, unit="entries", help="neighbours on either side that share votes")
    pool: str = param("mean", choices=("mean", "max"), help="what an entry gets of its neighbours' votes")

    @property
    def needs(self) -> Needs:
        return Needs(queries=self.window)

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("chosen", "chosen", self.chosen), Zone("window", "newest", self.window)

    def divide(self, budget: int) -> None:
        self.window = min(self.window, budget // 2)
        self.chosen = budget - self.window

    def worth(self, layer: int, store: LayerStore, prompt: Prompt) -> Tensor:
        before = store.n - self.window
        votes = prompt.rows(layer, store, self.window)[..., :before].sum(3)  # [B, H_kv, g, n - w]
        return F.pad(self.pooled(votes).mean(2), (0, self.window))

    def pooled(self, votes: Tensor) -> Tensor:
        """Votes float [B, ..., m] over neighbours; beyond the ends stand zeros."""
        pool = F.avg_pool1d if self.pool == "mean" else F.max_pool1d
        return pool(votes.flatten(1, -2), 2 * self.reach + 1, 1, self.reach).view(votes.shape)
