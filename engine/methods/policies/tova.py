"""TOVA: drop the entry that the newest token attends to least."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.policy import MOST, ScoredPolicy, share_knob
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.model.layers.column import EntryColumn
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.parts import Zone


@component
class TOVA(ScoredPolicy):
    """Once a layer holds more than `cache_size` entries, evict those with the least attention from the newest token.

    The attention is the mean over all query heads of the layer. So the layer has one set, whatever a single head would prefer
    to keep.

    No score carries over from token to token, and no entry is protected: the newest entry also leaves if its own token attends
    elsewhere. Of equal ones the lower position stays. In a prompt only the last token's row counts, so fused passes read the
    prompt. In a verified draft the row of its last accepted token counts. Positions are those of the text.

    The row is kept as a column, so that views show it. It costs 4 bytes per entry, which the authors' code does not spend.
    """

    title = "TOVA (token omission via attention)"
    source = "Oren et al. 2024, arXiv:2401.06104, section 4; schwartz-lab-NLP/TOVA, src/tova_cache.py"
    needs: ClassVar[Needs] = Needs(attention="decode", queries=1)
    columns = {"given": EntryColumn()}  # noqa: RUF012 # a constant of the class
    column, weighs = "given", "attention of the newest token"
    goes = "Over its budget each layer gives up, in all KV heads alike, the entries to which the newest token gives least."

    cache_size: int = param(128, low=1, high=MOST, unit="entries", help="entries kept in each layer")
    budget_share: float = share_knob()

    @property
    def zones(self) -> tuple[Zone, ...]:
        return (Zone("looked at", "chosen", self.cache_size),)

    def set_budget(self, budget: int) -> None:
        self.cache_size = budget

    def observe(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        # [B, n]: the newest token's attention, averaged over all heads
        given = rows[:, :, :, -1].mean((1, 2))
        store.column("given").copy_(given[:, None])

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        for layer, store in enumerate(cache.layers):
            # the last token that ran the layer; under an adaptive-depth rule it may be an earlier one
            self.observe(layer, store, prompt.rows(layer, store, prompt.length))

    def score(self, store: LayerStore) -> Tensor:
        return store.column("given")
