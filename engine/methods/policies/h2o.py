"""H2O: keep the heavy hitters and the most recent entries."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.policy import MOST, ScoredPolicy, share_knob
from decodescope.engine.model.layers.column import EntryColumn
from decodescope.engine.model.stores.cache import LayerStore
from decodescope.engine.trace.records.parts import Zone


@component
class H2O(ScoredPolicy):
    """Evict the entries with the least accumulated attention, once more than `heavy + recent` are held.

    Each KV head keeps its own set. The mass of an entry is the attention that it received from all committed queries so far,
    summed over the query heads of its group, in float32. Each query's attention is over the entries held at that time (online
    H2O). The `recent` newest entries are never evicted; of entries with equal mass the lower position stays. Under tree
    verification only the rows of accepted nodes count, and eviction follows the commit. The prompt is read densely. The first
    cut follows the commit of its last token, and the row of this token counts.

    After the first eviction, these weights are over the surviving entries. With `oracle` they are those of the full cache on
    the same text, from a second cache (`ReferenceCache`). So `oracle` keeps what true scores would keep. It shows how much the
    online scores mislead, and saves neither memory nor time.

    With a `budget_share` the budget is that share of the prompt's length, divided in the ratio of `heavy` to `recent`.
    """

    title = "H2O (heavy-hitter oracle)"
    source = "Zhang et al. 2023, arXiv:2306.14048, section 4; FMInference/H2O, h2o_hf/utils_real_drop; shares: utils_hh"
    columns = {"mass": EntryColumn()}  # noqa: RUF012 # a constant of the class
    column, weighs = "mass", "attention"
    goes = "Over its budget each KV head gives up the entries that drew the least attention so far; the newest never leave."

    heavy: int = param(
        64, low=0, high=MOST, unit="entries", help="entries kept for their accumulated attention"
    )
    recent: int = param(64, low=1, high=MOST, unit="entries", help="newest entries, always kept")
    oracle: bool = param(False, help="score entries by the attention of a full cache that is kept as well")
    budget_share: float = share_knob()

    @property
    def needs(self) -> Needs:
        return Needs(attention="none" if self.needs_reference else "columns")

    @property
    def needs_reference(self) -> bool:
        """Whether the policy scores by a full cache in addition to the lane's."""
        return self.oracle

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("heavy hitters", "chosen", self.heavy), Zone("recent", "newest", self.recent)

    def set_budget(self, budget: int) -> None:
        self.heavy = budget * self.heavy // (self.heavy + self.recent)
        self.recent = budget - self.heavy  # at least 1, as it was before

    def observe_columns(self, layer: int, store: LayerStore, columns: Tensor) -> None:
        store.column("mass").add_(columns)

    def observe(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        store.column("mass").add_(rows.sum((2, 3)))

    def score(self, store: LayerStore) -> Tensor:
        return store.column("mass")
