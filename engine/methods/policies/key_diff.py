"""KeyDiff: keep the entries whose keys differ most from the others."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.policy import MOST, ScoredPolicy, share_knob
from decodescope.engine.model.stores.cache import LayerStore
from decodescope.engine.trace.records.parts import Zone

from .shared.key_scores import difference_scores


@component
class KeyDiff(ScoredPolicy):
    """Evict the entries whose keys are most alike, once more than `distinct_entries` + `recent` are held.

    The anchor of a KV head is the mean of its keys, each scaled to length 1. An entry is worth minus the cosine between its
    key and the anchor: a key that points where most keys point is one of many, and a key that points elsewhere is rare. Keys
    that differ from the others tend to draw much attention, so the policy needs no attention weights, and passes run the
    fused kernel. Each KV head keeps its own set; of equal entries the lower position stays.

    The anchor moves with every entry that comes or leaves, so each cut reads the keys of all held entries. The authors read a
    long prompt in blocks and cut after each block, so that memory stays bounded while the prompt is read. Here the prompt is
    read whole, as in kvpress, then cut; afterwards each commit cuts. The authors protect no entry for its place (`recent` =
    0).
    """

    title = "KeyDiff"
    source = "Park et al. 2025, arXiv:2504.15364, section 3; NVIDIA/kvpress, kvpress/presses/keydiff_press.py"
    goes = "Over its budget each KV head gives up the entries whose keys are most like the mean key; the newest never leave."

    distinct_entries: int = param(
        128,
        low=1,
        high=MOST,
        unit="entries",
        help="entries kept because their keys differ most from the mean",
    )
    recent: int = param(0, low=0, high=MOST, unit="entries", help="newest entries, always kept")
    budget_share: float = share_knob()

    @property
    def zones(self) -> tuple[Zone, ...]:
        distinct = Zone("distinct keys", "chosen", self.distinct_entries)
        return (distinct, Zone("recent", "newest", self.recent)) if self.recent else (distinct,)

    def set_budget(self, budget: int) -> None:
        self.distinct_entries = max(
            1, budget * self.distinct_entries // (self.distinct_entries + self.recent)
        )
        self.recent = budget - self.distinct_entries

    def score(self, store: LayerStore) -> Tensor:
        return difference_scores(store)
