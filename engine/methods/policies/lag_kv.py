"""LagKV: a partition of the text keeps the entries that stand out against the partition after it."""

from __future__ import annotations

from collections.abc import Callable, Container

import torch
from torch import Tensor

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.model.attention.attention import upcast_half
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.events import Piece
from decodescope.engine.trace.records.parts import Zone


@component
class LagKV(CachePolicy):
    """Cut the text into partitions, and thin each one out as soon as the next is complete.

    The first `sink_tokens` entries stay. Behind them each partition holds `lag` tokens. Once the partition after it is
    complete, a KV head keeps int(`kept_share` * `lag`) of its entries, and never cuts it again. So between `lag` and 2 *
    `lag` - 1 newest entries are always there, and the cache grows by `kept_share` of an entry per token: there is no fixed
    budget.

    Keys and values are scored alike. Each channel is scaled so that the smallest and the largest number of the next partition
    become 0 and 1. The standard deviation over the channels tells how far an entry lies from that range; a softmax over the
    partition makes the deviations of keys and of values comparable, and the two are added. The best entries stay; of equal
    ones the lower position. No attention is needed, so passes run the fused kernel.

    A channel in which the next partition does not vary is left out; the authors' code divides by zero there. kvpress ranks
    the entries within each partition and cuts once, which keeps the same entries where the budget divides evenly.
    """

    title = "LagKV"
    source = (
        "Liang et al. 2025, arXiv:2504.04704, section 2; AI-Lab-China-Merchants-Bank/LagKV, lag_kv.py; "
        "NVIDIA/kvpress, kvpress/presses/lagkv_press.py"
    )
    goes = "Each partition of the text gives up most of its entries, once the next partition is complete."

    sink_tokens: int = param(16, low=0, high=64, unit="entries", help="first entries, always kept")
    lag: int = param(
        128,
        low=2,
        high=8192,
        unit="tokens",
        help="size of a partition; the next one is the reference for its scores",
    )
    kept_share: float = param(
        0.25,
        low=0.0,
        high=1.0,
        step=0.01,
        unit="of a partition",
        help="share of a partition's entries that stays",
    )

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("sinks", "first", self.sink_tokens), Zone("lag", "newest", self.lag)

    @property
    def budget(self) -> int | None:
        """None: what is held grows with the text."""
        return None

    @property
    def kept(self) -> int:
        """Entries that a KV head keeps of a partition."""
        return int(self.kept_share * self.lag + 1e-9)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.kept < self.lag:
            return None
        return f"{self.name}.kept_share = {self.kept_share:g} keeps everything; choose a share below 1."

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        super().begin(spec, prompt, pieces, marks)
        self._cut = 0  # partitions that were thinned out

    def max_entries(self, prompt: int, new: int) -> int:
        length = prompt + new
        cut = max(0, (length - self.sink_tokens) // self.lag - 1)
        return max(prompt, length - cut * (self.lag - self.kept))

    def compress(self, cache: KVCache) -> None:
        complete = (cache.length - self.sink_tokens) // self.lag
        for partition in range(self._cut, complete - 1):
            for store in cache.layers:
                self.thin_out(store, self.sink_tokens + partition * self.lag)
        self._cut = max(self._cut, complete - 1)

    def thin_out(self, store: LayerStore, first: int) -> None:
        """Cut the partition that begins at position `first` down to `kept` entries in each KV head of `store`."""
        at = store.positions()
        at = at.expand(store.batch, len(store.lengths), -1)  # [B, H_kv, n]
        order = at.argsort(-1)
        ends = [int((at[0, 0] < first + i * self.lag).sum()) for i in range(3)]
        here, after = order[..., ends[0] : ends[1]], order[..., ends[1] : ends[2]]
        gone = here.shape[2] - self.kept
        if gone <= 0 or not after.shape[2]:  # a layer may lack tokens that left the model early
            return
        key_worth, value_worth = (stand_out(upcast_half(x), here, after) for x in (store.k, store.v))
        latest = here.flip(-1)  # of equal entries the higher position leaves first
        leaving = (key_worth + value_worth).flip(-1).argsort(dim=-1, stable=True)[..., :gone]
        store.evict(latest.gather(-1, leaving))

    def idle_reason(self, did: Activity) -> str:
        if not super().idle_reason(did):
            return ""
        needed = self.sink_tokens + 2 * self.lag
        return f"{self.name} kept all {did.held} entries: it cuts from {needed} tokens on, sinks and two partitions."


def stand_out(x: Tensor, here: Tensor, after: Tensor) -> Tensor:
    """How far the entries `here` (int64 [B, H_kv, a], slots) lie from the range of those of `after` (int64 [B, H_kv, b]):
    float [B, H_kv, a], a softmax. x: float [B, H_kv, n, D], the keys or the values of a layer."""
    own, reference = (x.gather(2, slots[..., None].expand(-1, -1, -1, x.shape[3])) for slots in (here, after))
    least, most = reference.amin(2, keepdim=True), reference.amax(2, keepdim=True)
    scaled = torch.where(most > least, (own - least) / (most - least), 0)
    return scaled.std(-1).softmax(-1)
