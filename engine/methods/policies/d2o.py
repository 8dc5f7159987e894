"""D2O: an evicted entry is merged into the most similar kept entry."""

from __future__ import annotations

import math
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
from decodescope.engine.trace.records.head_plan import make_plan
from decodescope.engine.trace.records.parts import Zone


@component
class D2O(ScoredPolicy):
    """H2O with two changes: layers get budgets by how they attend, and evicted entries are merged into kept ones.

    **Layers.** A layer with evenly spread attention needs many entries, and a layer with peaked attention needs few. After the
    prompt, compute for each query head the variance, over the entries, of the attention that they received. Scale the smallest
    and largest of a layer's heads to 0 and 1; F is the layer's mean. A layer's part of all L (heavy + recent) entries is its
    softmax of -F, at least a hundredth of the prompt. It is divided into heavy and recent in the ratio of the knobs.

    **Entries.** For each victim of H2O's scores, find the kept key of its head with the largest cosine u to its own. If u is at
    least the layer's threshold, the victim is merged into that entry, key and value; otherwise it is dropped. The threshold
    begins as the mean u of the first victims, and is then alpha * threshold + beta * mean u. `merge_weights` chooses the
    weights:

        paper:  e / Z for the target and exp(u_i) / Z for each victim, Z = e + sum of exp(u_i): a convex combination
        code:   1 / (c + 1) for the target and u_i / (c + 1) for each of its c victims, which shrinks it where u < 1; and in
                the code a victim is judged by the mean of u over the heads, the i-th of each head in the order of the text

    Both follow the authors' code; the paper's weights are recalled. The code leaves layers 0, 1 and the last whole; here every
    layer is cut. The code repeats keys for each query head; here a KV head has one set, and its score is summed over its group.
    The first cut follows the commit of the prompt's last token. The merged keys are rotated ones.
    """

    title = "D2O"
    source = "Wan et al. 2025, arXiv:2406.13035, section 3; AIoT-MLSys-Lab/D2O, modeling_llama3_7b_13b_d2o.py"
    needs: ClassVar[Needs] = Needs(attention="decode", queries=MOST)
    does = frozenset({"evict", "merge"})
    columns = {  # noqa: RUF012 # a constant of the class
        "mass": EntryColumn(),
        "weight": EntryColumn(1.0),
        "kind": EntryColumn(TOKEN, torch.uint8),
    }
    column, weighs = "mass", "attention"
    goes = "Over its layer's budget each KV head merges what drew the least attention into the entry most like it, or drops it."
    tells: ClassVar[dict[str, Note]] = {
        "spread": Note(
            "grid",
            "F of a layer",
            what="how unevenly the layer's heads attend, 0 to 1; more of it, fewer entries",
        ),
        "budget": Note("grid", "entries of a layer", "entries", what="that each KV head of the layer keeps"),
        "threshold": Note(
            "grid", "threshold", what="by layer, the similarity from which on a victim is merged"
        ),
    }

    heavy: int = param(
        64,
        low=1,
        high=MOST,
        unit="entries",
        help="entries kept for their accumulated attention, on average over layers",
    )
    recent: int = param(
        64, low=1, high=MOST, unit="entries", help="newest entries, always kept, on average over layers"
    )
    sink_tokens: int = param(
        4, low=0, high=64, unit="entries", help="first entries, never evicted while the budget has room"
    )
    merge_weights: str = param(
        "paper",
        choices=("paper", "code"),
        help="weights of merged entries: as in the paper, or as in the authors' code",
    )
    alpha: float = param(
        0.5,
        low=0.0,
        high=1.0,
        step=0.05,
        help="weight of the old threshold when the merge threshold is updated (alpha)",
    )
    beta: float = param(
        0.5,
        low=0.0,
        high=1.0,
        step=0.05,
        help="weight of the new mean similarity when the merge threshold is updated (beta)",
    )
    min_similarity: float = param(
        -1.0,
        low=-1.0,
        high=2.0,
        step=0.05,
        help="minimum cosine similarity for a merge; above 1: evicted entries are dropped",
    )
    budget_share: float = share_knob()

    @property
    def zones(self) -> tuple[Zone, ...]:
        return (Zone("sinks", "first", self.sink_tokens),) if self.sink_tokens else ()

    @property
    def budget(self) -> int | None:
        """None: each layer has its own budget, known after the prompt has been read."""
        return None

    def set_budget(self, budget: int) -> None:
        self.heavy = max(1, budget * self.heavy // (self.heavy + self.recent))
        self.recent = budget - self.heavy

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        super().begin(spec, prompt, pieces, marks)
        self._spread: list[float] = []  # F of each layer
        self._kept: list[tuple[int, int]] = []  # (heavy, recent) of each layer
        self._threshold: dict[int, Tensor] = {}  # layer -> float32 [B]
        self._notes: dict[str, Any] = {}

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        for i, store in enumerate(cache.layers):
            parts = [rows.sum(3) for _, rows in prompt.tiles(i, store)]  # [B, H_kv, g, n] each
            sums = torch.stack(parts).sum(0)
            store.column("mass").copy_(sums.sum(2))
            # [H]; sequences that are read together share one prompt
            variance = sums[0].flatten(0, 1).var(-1, correction=0)
            least, most = variance.aminmax()
            self._spread.append(float(((variance - least) / (most - least + 1e-6)).mean()))
        self._kept = self.plan(self._spread, prompt.length)
        self.settled = make_plan(
            [[sum(x)] * len(store.lengths) for store, x in zip(cache.layers, self._kept, strict=True)]
        )
        self._notes = {"spread": self._spread, "budget": [sum(x) for x in self._kept]}

    def plan(self, spread: list[float], prompt: int) -> list[tuple[int, int]]:
        """(heavy, recent) of each layer, for F of each layer and a prompt of `prompt` tokens."""
        both = self.heavy + self.recent
        shares = torch.tensor(spread, dtype=torch.float64).neg().softmax(0).tolist()
        budgets = [max(share * len(spread) * both, prompt / 100) for share in shares]
        return [
            (
                max(self.sink_tokens, int(x * self.heavy / both + 1e-9)),
                max(1, int(x * self.recent / both + 1e-9)),
            )
            for x in budgets
        ]

    def observe(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        store.column("mass").add_(rows.sum((2, 3)))

    def surplus(self, store: LayerStore) -> int:
        return store.n - sum(self._kept[store.layer])

    def score(self, store: LayerStore) -> Tensor:
        at = store.positions()
        recent = at > at.amax(-1, keepdim=True) - self._kept[store.layer][1]
        return store.column("mass").masked_fill(recent, torch.inf)

    def discard(self, store: LayerStore, slots: Tensor) -> None:
        at = store.positions().expand(*slots.shape[:2], -1)
        slots = slots.gather(2, at.gather(2, slots).argsort(2))
        keys = F.normalize(upcast_half(store.k), dim=-1)
        leaving = torch.zeros_like(at, dtype=torch.bool).scatter(2, slots, True)
        # [B, H_kv, e, n]
        likeness = keys.gather(2, slots[..., None].expand(-1, -1, -1, keys.shape[3])) @ keys.mT
        stays = likeness.masked_fill(leaving[:, :, None], -torch.inf)
        # [B, H_kv, e]; of equal keys the first, regardless of rounding in the product
        target = stays.float().argmax(-1)
        u = stays.gather(3, target[..., None])[..., 0]
        threshold = self._raise_threshold(store.layer, u.mean((1, 2)))[:, None, None]
        judged = u if self.merge_weights == "paper" else u.mean(1, keepdim=True)
        merged = (judged >= threshold) & (u >= self.min_similarity)
        # a target's weight before normalisation
        alone = math.e if self.merge_weights == "paper" else 1.0
        part = merged * (u.exp() if self.merge_weights == "paper" else torch.ones_like(u))
        total = u.new_full(at.shape, alone).scatter_add(2, target, part)
        weights = part / total.gather(2, target)
        merge_entries(
            store,
            slots,
            target,
            weights if self.merge_weights == "paper" else weights * u,
            alone / total,
            similarity=u,
        )

    def _raise_threshold(self, layer: int, mean: Tensor) -> Tensor:
        """The updated threshold of a layer after victims with this mean similarity (float32 [B])."""
        before = self._threshold.get(layer)
        self._threshold[layer] = mean if before is None else self.alpha * before + self.beta * mean
        return self._threshold[layer]

    def notes(self) -> dict[str, Any] | None:
        notes, self._notes = self._notes, {}
        if self._threshold:
            by_layer = [self._threshold.get(i) for i in range(len(self._kept))]
            notes["threshold"] = [None if x is None else float(x[0]) for x in by_layer]
        return notes or None
