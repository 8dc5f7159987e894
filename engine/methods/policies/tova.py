"""TOVA: drop what the newest token looks at least."""

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
    """Once a layer holds more than `size` entries, those leave to which the newest token gives least, in the mean of all its
    query heads: one set for the layer, whatever a single head would like to keep.

    Nothing is remembered from token to token and nothing is protected: the newest entry goes too, if its own token looks
    elsewhere. Of equal ones the lower position stays. Of a prompt only the last token's row counts, so the prompt is read by
    fused passes. A verified draft counts by the row of its last accepted token. Positions are those of the text.

    The row is kept as a column, so that views show it; it costs 4 bytes an entry, which the authors' code does without.
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
        # [B, n]: what the newest token gives, in the mean of all heads
        given = rows[:, :, :, -1].mean((1, 2))
        store.column("given").copy_(given[:, None])

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        for layer, store in enumerate(cache.layers):
            # the last token that went through the layer: under a depth rule it may be an earlier one
            self.observe(layer, store, prompt.rows(layer, store, prompt.length))

    def score(self, store: LayerStore) -> Tensor:
        return store.column("given")
