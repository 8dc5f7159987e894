"""Scissorhands: drops entries that drew little attention lately, many at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.policy import MOST, ScoredPolicy, share_knob
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.model.layers.column import EntryColumn
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.parts import Zone


@component
class Scissorhands(ScoredPolicy):
    """Once more than B = `pivotal_entries` + `recent` entries are held, drop those that were below uniform in most of the last
    rows.

    Pivotal entries stay pivotal ("persistence of importance"), so a few rows are enough evidence. Each of the last `window`
    rows sets one bit per entry that it sees. The bit is 1 if the entry's mean weight over the query heads of the group is below
    1 / t, where t is the number of entries that the row sees. An entry's counter is the number of its bits, and the `recent`
    newest are exempt. When there are more than B entries, m = `drop_share` B of them leave at once: those with the highest
    counters, of equal ones the later positions. So the occupancy follows a sawtooth, and most commits drop nothing.

    The bits are a ring buffer stored with the entry, with one byte for eight rows. A row's place in it is its position modulo
    `window`. Fused passes read the prompt densely. The bits of its last rows are set at its end, before the first cut, which
    drops m entries as often as needed. The paper also cuts within a prompt, and gives later layers more entries; here all
    layers have the same number. The counter and the authors' numbers (window 400, recent 10, drop 0.5) are recalled from the
    paper; there is no official code.
    """

    title = "Scissorhands"
    source = "Liu et al. 2023, arXiv:2305.17118, algorithms 1 and 2"
    goes = "Over its budget each KV head drops many entries at once: those that were below uniform in most of the last rows."

    pivotal_entries: int = param(
        118,
        low=1,
        high=MOST,
        unit="entries",
        help="maximum number of important entries kept besides the newest",
    )
    recent: int = param(10, low=1, high=MOST, unit="entries", help="newest entries, never dropped")
    window: int = param(
        400,
        low=1,
        high=4096,
        unit="rows",
        help="last queries whose attention decides which entries are unimportant",
    )
    drop_share: float = param(
        0.5,
        low=0.0,
        high=1.0,
        step=0.01,
        unit="of the budget",
        help="how many entries are dropped at once when too many are held; 0: one",
    )
    budget_share: float = share_knob()

    @property
    def needs(self) -> Needs:
        return Needs(attention="decode", queries=self.window)

    @property
    def columns(self) -> dict[str, EntryColumn]:  # type: ignore[override] # a base without the knob has a constant
        """`below`: the bits of the last rows."""
        return {"below": EntryColumn(0, torch.uint8, width=-(-self.window // 8))}

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("pivotal", "chosen", self.pivotal_entries), Zone("recent", "newest", self.recent)

    @property
    def eviction_count(self) -> int:
        """m: entries that leave at once, limited so that no exempt entry has to leave."""
        return max(1, min(int(self.drop_share * (self.pivotal_entries + self.recent)), self.pivotal_entries))

    def set_budget(self, budget: int) -> None:
        self.pivotal_entries = max(1, budget * self.pivotal_entries // (self.pivotal_entries + self.recent))
        self.recent = budget - self.pivotal_entries

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        for i, store in enumerate(cache.layers):
            if places := prompt.places(i, self.window):
                self._judge(
                    store, prompt.rows(i, store, self.window), torch.tensor(places, device=store.kv.device)
                )

    def observe(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        rows = rows[:, :, :, -self.window :]
        last = store.positions()[0, 0].amax()
        self._judge(store, rows, last + torch.arange(1 - rows.shape[3], 1, device=last.device))

    def _judge(self, store: LayerStore, rows: Tensor, own: Tensor) -> None:
        """Set the bits of the rows float [B, H_kv, g, R, n], at the positions `own` (int64 [R], different modulo `window`)."""
        seen = store.positions()[:, :, None] <= own[:, None]  # [B, h, R, n]
        below = seen & (rows.mean(2) * seen.sum(-1, keepdim=True) < 1)  # [B, H_kv, R, n]
        place = own % self.window
        bit = (1 << place % 8).to(torch.uint8)[:, None]  # [R, 1]
        byte = (place // 8)[:, None].expand(below.shape)  # [B, H_kv, R, n]
        bits = self.bits(store)
        ring = bits.new_zeros(*below.shape[:2], bits.shape[3], below.shape[3])  # [B, H_kv, W, n]
        of_rows = ring.scatter_add(2, byte, bit.expand(below.shape))
        verdicts = ring.scatter_add(2, byte, below * bit)
        bits.copy_((bits.mT & ~of_rows | verdicts).mT)

    def bits(self, store: LayerStore) -> Tensor:
        """uint8 [B, H_kv, n, W]: a view of each entry's bits."""
        held = store.column("below")
        return held.view(*held.shape[:3], -(-self.window // 8))

    def counters(self, store: LayerStore) -> Tensor:
        """int64 [B, H_kv, n]: how many of the last rows found an entry below uniform."""
        eight = torch.arange(8, dtype=torch.uint8, device=store.kv.device)
        return (self.bits(store)[..., None] >> eight & 1).sum((-1, -2))

    def score(self, store: LayerStore) -> Tensor:
        return -self.counters(store).float()

    def surplus(self, store: LayerStore) -> int:
        return -(-super().surplus(store) // self.eviction_count) * self.eviction_count
