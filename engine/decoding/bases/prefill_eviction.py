"""Once: the base of policies that cut when the prompt has ended, and hold all that is written after."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.activity import Activity
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.head_plan import make_plan

from ..values.prompt_attention import PromptAttention
from .policy import ScoredPolicy


class PrefillEviction(ScoredPolicy):
    """`worth` gives the value of a prompt entry, `plan` how many each layer keeps; `zones` define which never leave.

    The prompt is read densely, its last token too, so the first token that is written has the full cache's distribution.
    Then each KV head keeps the most valuable entries, and the cache grows from there. Nothing leaves while text is written.
    So a draft reads the same cache as a single token: speculation changes nothing under such a policy. Only the
    prompt's last token must then be read alone, or a draft after it would still see what leaves.
    """

    goes: ClassVar[str] = (
        "When the prompt has been read each KV head gives up those of its entries that are worth least. What is written stays."
    )
    once = True

    def entry_scores(self, layer: int, store: LayerStore, prompt: PromptAttention) -> Tensor:
        """The values of the prompt's entries: float [B, H_kv, n], by slot; nothing has left yet, so slot equals position."""
        raise NotImplementedError

    @property
    def capacity(self) -> int:
        """Entries of the prompt that a layer and KV head keeps, in the mean of all."""
        return sum(zone.entries for zone in self.zones)

    @property
    def budget(self) -> int | None:
        """None: what is written comes on top of `capacity`."""
        return None

    def max_entries(self, prompt: int, new: int) -> int:
        return max(prompt, min(prompt, self.capacity) + new)

    def plan(self, layers: int, prompt: int) -> list[int]:
        """How many of a prompt's entries each layer keeps per KV head; more than there are: all."""
        return [self.capacity] * layers

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        kept = self.plan(len(cache.layers), prompt.length)
        self.settled = make_plan(
            [[keep] * len(store.lengths) for store, keep in zip(cache.layers, kept, strict=True)]
        )
        for i, (store, keep) in enumerate(zip(cache.layers, kept, strict=True)):
            if store.n > keep:
                self.cut(store, self.entry_scores(i, store, prompt), keep, prompt.length)

    def cut(self, store: LayerStore, worth: Tensor, keep: int, length: int) -> None:
        """Leave `keep` entries in each KV head of `store`, those with the most `worth` (float [B, H_kv, n]) and those that may
        not go; length: tokens of the prompt."""
        self.record_ranking(store, worth, length)
        positions = store.positions().expand(worth.shape)
        store.evict(self.victims(worth, positions, length, store.n - keep))

    def idle_reason(self, did: Activity) -> str:
        kept = f"{self.name} kept all {did.prompt - did.left_out} entries of the prompt: its budget is {self.capacity}."
        return kept if super().idle_reason(did) else ""

    def compress(self, cache: KVCache) -> None:
        """Nothing: what is written stays."""
