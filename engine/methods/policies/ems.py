"""EMS: entries over the budget are dropped if they drew little attention, and merged into a kept entry if they drew more."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.policy import MOST, ScoredPolicy, share_knob
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.model.attention.attention import upcast_half
from decodescope.engine.model.layers.column import TOKEN, EntryColumn
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.model.stores.merge import merge_entries
from decodescope.engine.trace.records.events import Piece
from decodescope.engine.trace.records.parts import Zone


@component
class EMS(ScoredPolicy):
    """Evict, then merge.

    This is a reading of the paper's outline, written without its formulas; there is no official code. Choices of this project
    are marked "ours".

    **Score.** The global score is the mean weight that an entry drew, over all queries that could see it, so early entries have
    no advantage. The local score is the mean over the last `window` queries, each entry averaged with its neighbours within
    `pool_radius`. Per KV head the global scores are scaled to the mean of the local ones, and the larger of both counts (ours:
    the scaling, and the maximum). During generation the local mean becomes a moving one of rate 1 / `window`, without
    neighbours (ours).

    **Classes.** Each KV head keeps the `centres` best and the `recent` newest. Of the entries over the budget, those among the
    best that together hold `merge_coverage` of the head's score are merged. The tail is evicted. So a head that attends to few
    entries evicts more, and one that attends to many merges more (ours: the measure). An entry to be merged goes to the centre
    of its head with the most similar key (cosine). If that similarity is below `min_similarity`, it goes to the zero class,
    which is dropped. All heads of a layer give up the same number of entries.

    **Merging.** A centre's key and value become the mean of itself, with weight 1, and the entries merged into it, weighted by
    similarity (ours). This is a convex combination. The keys are rotated ones. The cut follows the commit of the prompt's last
    token, and then every commit.
    """

    title = "EMS (evict, then merge)"
    source = "Li et al. 2024, arXiv:2412.08521, after its outline: our reading"
    does = frozenset({"evict", "merge"})
    columns = {  # noqa: RUF012 # a constant of the class
        "mass": EntryColumn(),
        "local": EntryColumn(),
        "weight": EntryColumn(1.0),
        "kind": EntryColumn(TOKEN, torch.uint8),
    }
    column, weighs = "mass", "attention"
    goes = (
        "Over its budget each KV head gives up what is worth least: the tail is dropped, the rest goes into the kept entry "
        "most like it, or into the zero class."
    )
    tells: ClassVar[dict[str, Note]] = {
        "covering": Note(
            "grid",
            "entries that count",
            "entries",
            what="by layer.KV head: the best ones that hold `covered`",
        ),
    }

    centres: int = param(
        96,
        low=1,
        high=MOST,
        unit="entries",
        help="entries kept for their score; evicted entries may be merged into them",
    )
    recent: int = param(
        32, low=1, high=MOST, unit="entries", help="newest entries, always kept and never merged"
    )
    window: int = param(
        16, low=1, high=512, unit="queries", help="last queries over which the local score is averaged"
    )
    pool_radius: int = param(
        2,
        low=0,
        high=31,
        unit="entries",
        help="neighbours on each side whose local scores are averaged with an entry's own; 0: none",
    )
    min_similarity: float = param(
        0.6,
        low=0.0,
        high=2.0,
        step=0.05,
        help="minimum cosine similarity for a merge; above 1: evicted entries are dropped",
    )
    merge_coverage: float = param(
        0.95,
        low=0.0,
        high=1.0,
        step=0.01,
        help="top share of a head's score whose entries are merged; the rest is dropped",
    )
    budget_share: float = share_knob()

    @property
    def needs(self) -> Needs:
        return Needs(attention="columns", queries=self.window)

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("centres", "chosen", self.centres), Zone("recent", "newest", self.recent)

    def set_budget(self, budget: int) -> None:
        self.centres = max(1, budget * self.centres // (self.centres + self.recent))
        self.recent = budget - self.centres

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        super().begin(spec, prompt, pieces, marks)
        self._spec = spec
        self._covering: dict[str, float] = {}

    def observe_columns(self, layer: int, store: LayerStore, columns: Tensor) -> None:
        store.column("mass").add_(columns)

    def observe(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        store.column("mass").add_(rows.sum((2, 3)))
        stays = 1 - 1 / self.window
        ages = torch.arange(rows.shape[3] - 1, -1, -1, device=rows.device)
        new = (rows.sum(2) * (stays**ages / self.window)[:, None]).sum(2)
        store.column("local").mul_(stays ** rows.shape[3]).add_(new)

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        for i, store in enumerate(cache.layers):
            if prompt.places(i, self.window):
                # [B, H_kv, n], in the order of the text
                votes = prompt.rows(i, store, self.window).sum(2).mean(2)
                store.column("local").copy_(
                    F.avg_pool1d(votes, 2 * self.pool_radius + 1, 1, self.pool_radius)
                )

    def score(self, store: LayerStore) -> Tensor:
        """The larger of the global and the local score, float32 [B, H_kv, n]."""
        at, window = store.positions(), self._spec.window(store.layer)
        seen = at.amax(-1, keepdim=True) + 1 - at  # queries that could see an entry, including its own
        means = store.column("mass") / (seen if window is None else seen.clamp(max=window))
        local = store.column("local")
        scale = local.mean(-1, keepdim=True) / means.mean(-1, keepdim=True).clamp(min=1e-30)
        return torch.maximum(means * scale, local)

    def discard(self, store: LayerStore, slots: Tensor) -> None:
        scores, at = self.score(store), store.positions().expand(*slots.shape[:2], -1)
        counts = self._counting_mask(scores, store.layer)
        centres = (at < at.amax(-1, keepdim=True) + 1 - self.recent).scatter(2, slots, False)
        keys = F.normalize(upcast_half(store.k), dim=-1)
        # [B, H_kv, e, n]
        likeness = keys.gather(2, slots[..., None].expand(-1, -1, -1, keys.shape[3])) @ keys.mT
        u, target = likeness.masked_fill(~centres[:, :, None], -torch.inf).max(-1)  # [B, H_kv, e]
        part = u * (counts.gather(2, slots) & (u >= self.min_similarity))
        total = u.new_ones(at.shape).scatter_add(2, target, part)
        merge_entries(store, slots, target, part / total.gather(2, target), 1 / total, similarity=u)

    def _counting_mask(self, scores: Tensor, layer: int) -> Tensor:
        """bool [B, H_kv, n]: the best entries of each head that hold `merge_coverage` of its score, including all ties."""
        best = scores.sort(dim=-1, descending=True).values
        before = best.cumsum(-1) - best
        count = (before < self.merge_coverage * best.sum(-1, keepdim=True)).sum(
            -1, keepdim=True
        )  # [B, H_kv, 1]
        least = best.gather(-1, (count - 1).clamp(min=0)).masked_fill(count == 0, torch.inf)
        self._covering |= {f"{layer}.{h}": x for h, x in enumerate(count[0, :, 0].tolist())}
        return scores >= least

    def notes(self) -> dict[str, Any] | None:
        covering, self._covering = self._covering, {}
        return {"covering": covering} if covering else None
