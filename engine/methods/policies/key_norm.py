"""Key norm: keep the entries whose keys are short."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.policy import MOST, ScoredPolicy, share_knob
from decodescope.engine.model.layers.column import EntryColumn
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.parts import Zone


@component
class KeyNorm(ScoredPolicy):
    """Evict the entries with the longest keys, once more than `low_norm_entries` + `recent` are held.

    A short key tends to draw much attention later, whatever the query. So the policy needs no attention weights, and passes run
    the fused kernel. The norm of a key is stored with its entry; to compute it again after every commit would read as many
    bytes as half of the pass's attention. Each KV head keeps its own set; of equal norms the lower position stays.

    The authors cut a prompt once, in all but some first layers. Here every layer is cut, at the prompt's end and after each
    commit. The authors do not protect the newest entries (`recent = 0`); then a token may leave at once.
    """

    title = "Key norm"
    source = "Devoto et al. 2024, arXiv:2406.11430, section 3; alessiodevoto/l2compress, cache.py"
    columns = {"norm": EntryColumn()}  # noqa: RUF012 # a constant of the class
    goes = "Over its budget each KV head gives up the entries with the longest keys; the newest never leave."
    reads = True

    low_norm_entries: int = param(
        96, low=0, high=MOST, unit="entries", help="entries kept for the smallest key norms"
    )
    recent: int = param(32, low=0, high=MOST, unit="entries", help="newest entries, always kept")
    budget_share: float = share_knob()

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("short keys", "chosen", self.low_norm_entries), Zone("recent", "newest", self.recent)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return (
            None
            if self.low_norm_entries + self.recent
            else "key_norm keeps nothing: let short or recent be at least 1."
        )

    def set_budget(self, budget: int) -> None:
        self.low_norm_entries = budget * self.low_norm_entries // (self.low_norm_entries + self.recent)
        self.recent = budget - self.low_norm_entries

    def read(self, cache: KVCache, tokens: Tensor) -> None:
        rows = tokens.shape[1]
        for store in cache.layers:
            norms, first = store.column("norm"), store.n - rows
            if store.heads is None:
                norms[:, :, first:] = store.k[:, :, first:].float().norm(dim=-1)
            else:  # a head's newest entries end at its own last one, which differs between heads
                fresh = store.positions() >= cache.length - rows
                norms[fresh] = store.k[fresh].float().norm(dim=-1)

    def score(self, store: LayerStore) -> Tensor:
        return -store.column("norm")
