"""FastGen: each head is profiled once, and keeps the kinds of entries that it was found to need."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.policy import MOST, CachePolicy
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.decoding.values.ranking import save_ranking
from decodescope.engine.model.layers.column import EntryColumn
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.events import Piece
from decodescope.engine.trace.records.head_plan import make_plan
from decodescope.engine.trace.records.parts import Zone

from .shared.profiles import PUNCTUATION, SPECIAL, TEXT, TokenTypes, own_mask, values_by_head

CANDIDATES = ("special", "punctuation", "frequent", "local", "full")


def _recovery_note(candidate: str) -> Note:
    return Note("grid", f"recovered: {candidate}", what="share of the prompt's attention, by layer.KV head")


@component
class FastGen(CachePolicy):
    """Cut each KV head by the cheapest of five candidates that recovers at least a share `min_recovery` of its attention.

    Each candidate keeps everything that the one before it keeps, and adds one kind: special tokens (and the first `sink_tokens`
    entries); punctuation; the most attended entries, a share `heavy_share` of the prompt's length; the newest entries, a share
    `recent_share` of it; everything. After the prompt has been read, compute for each of its rows the share of its weights on
    the entries that a candidate keeps for that row. A candidate recovers the mean of this share over rows and over the query
    heads of the group. A head uses the first candidate to reach `min_recovery` for the whole run. `min_recovery` = 1 is the
    full cache.

    An entry's score is the attention that it received, divided by the number of rows that saw it. No attention map of the
    prompt is ever held. Rows are computed in tiles, and two sums per entry, over all rows and over the rows for which it was
    near, give all five shares. During generation each head evicts by its own candidate. So heads hold different numbers of
    entries, each in its own pages.

    The paper's special tokens are the model's marks, as with `sink_tokens` = 0. The reproduction that the authors refer to,
    AnswerDotAI/cold-compress, counts weights that change by less than 1e-4 instead of the mass, and masks buffers of full
    length. The order of candidates and both shares are the paper's (equation 2, section 5.1). It profiles with a
    `min_recovery` of 0.95 and reports 0.91 to 0.98.
    """

    title = "FastGen"
    source = "Ge et al. 2024, arXiv:2310.01801, algorithm 1; AnswerDotAI/cold-compress, cache.py"
    needs: ClassVar[Needs] = Needs(attention="decode", queries=MOST)
    reads = True
    columns = {"mass": EntryColumn(), "sort": EntryColumn(TEXT, torch.uint8)}  # noqa: RUF012 # a constant of the class
    column, weighs = "mass", "attention"
    goes = "Each KV head keeps what its profile chose: marks, punctuation, what is attended most, what is near, or all."
    tells: ClassVar[dict[str, Note]] = {
        **{f"recovered.{x}": _recovery_note(x) for x in CANDIDATES[:-1]},
        "chosen": Note("grid", "candidate", what="of each layer.KV head: 0 special tokens to 4 all"),
    }

    min_recovery: float = param(
        0.95,
        low=0.0,
        high=1.0,
        step=0.01,
        help="minimum share of its attention that a head must recover; 1: the full cache",
    )
    sink_tokens: int = param(
        4, low=0, high=64, unit="entries", help="first entries, always kept, as special tokens are"
    )
    heavy_share: float = param(
        0.3,
        low=0.0,
        high=1.0,
        step=0.01,
        unit="of the prompt",
        help="most attended entries, kept by heads that need more than punctuation",
    )
    recent_share: float = param(
        0.3,
        low=0.0,
        high=1.0,
        step=0.01,
        unit="of the prompt",
        help="newest entries, kept by heads that need more than the most attended ones",
    )

    @property
    def zones(self) -> tuple[Zone, ...]:
        return (Zone("sinks", "first", self.sink_tokens),) if self.sink_tokens else ()

    @property
    def budget(self) -> int | None:
        """None: a head may keep all entries."""
        return None

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        self._sorts = TokenTypes(pieces, marks)
        self._chosen: list[Tensor] = []  # for each layer int64 [B, H_kv]: its heads' candidates
        self._counts = math.ceil(self.heavy_share * prompt), math.ceil(self.recent_share * prompt)
        self._profile: list[Tensor] = []  # for each layer float32 [5, B, H_kv], until it has been recorded

    def read(self, cache: KVCache, tokens: Tensor) -> None:
        sorts = self._sorts.classify(tokens)
        for store in cache.layers:
            at = store.positions() - (cache.length - tokens.shape[1])  # new ones from 0 on
            sort = store.column("sort")
            of_new = sorts[:, None].expand(-1, at.shape[1], -1).gather(2, at.clamp(min=0))
            sort.copy_(torch.where(at >= 0, of_new, sort))

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        for i, store in enumerate(cache.layers):
            near, rows = self._sum_weights(i, store, prompt)
            kept = self._candidate_masks(store, cache.length)  # bool [5, B, H_kv, n]
            mass = store.column("mass")
            parts = [(mass * x).sum(-1) for x in kept[:3]]
            parts += [torch.where(kept[2], mass, near).sum(-1), mass.new_full(parts[0].shape, rows)]
            self._profile.append(torch.stack(parts) / rows)
            reached = self._profile[-1] >= self.min_recovery
            reached[:4] &= self.min_recovery < 1
            self._chosen.append(reached.int().argmax(0))
        chosen = torch.stack([x[0] for x in self._chosen])
        self.settled = make_plan((chosen * 0 - 1).tolist(), CANDIDATES, chosen.tolist())

    def _sum_weights(self, layer: int, store: LayerStore, prompt: PromptAttention) -> tuple[Tensor, int]:
        """Sum each entry's weights over the prompt's rows into `mass`.

        Returns float32 [B, H_kv, n], the same sum over the rows for which the entry was near, and the number of rows.
        """
        at, mass = store.positions()[:, :, None], store.column("mass").zero_()
        near, count = torch.zeros_like(mass), 0
        for places, rows in prompt.tiles(layer, store):
            rows, count = rows.mean(2), count + len(places)  # [B, H_kv, t, n]
            own = torch.tensor(places, device=at.device)[:, None]
            mass += rows.sum(2)
            near += (rows * (own - at < self._counts[1])).sum(2)
        return near, count

    def _candidate_masks(self, store: LayerStore, length: int) -> Tensor:
        """bool [5, B, H_kv, n]: the entries of a layer that each candidate keeps after a text of `length` tokens."""
        at, sort = store.positions().expand(store.column("sort").shape), store.column("sort")
        special = (sort == SPECIAL) | (at < self.sink_tokens)
        punctuation = special | (sort == PUNCTUATION)
        order = at.argsort(-1)  # of equal scores the lower position
        best = self._scores(store, length).gather(-1, order).argsort(dim=-1, descending=True, stable=True)
        frequent = punctuation.scatter(-1, order.gather(-1, best[..., : self._counts[0]]), True)
        near = frequent | (at >= length - self._counts[1])
        return torch.stack([special, punctuation, frequent, near, torch.ones_like(near)])

    def _scores(self, store: LayerStore, length: int) -> Tensor:
        """float32 [B, H_kv, n]: the attention that entries received over the rows that saw them; -1 where a head has none."""
        return (store.column("mass") / (length - store.positions())).masked_fill(store.positions() < 0, -1)

    def _record_ranking(self, store: LayerStore, kept: Tensor, chosen: Tensor, length: int) -> None:
        """Right before a cut, record in `store` the worth of its entries, if requested.

        Entries that a head keeps for another reason than their score are protected. kept: bool [5, B, H_kv, n];  chosen: int64
        [B, H_kv].
        """
        if store.ranked is not None:
            near = store.positions() >= length - self._counts[1]
            # without the most attended entries
            asked = torch.stack([kept[0], kept[1], kept[1], kept[1] | near, kept[4]])
            save_ranking(
                store,
                self._scores(store, length).masked_fill(own_mask(asked, chosen), torch.inf),
                self.column,
            )

    def observe(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        store.column("mass").add_(rows.mean(2).sum(2))

    def compress(self, cache: KVCache) -> None:
        for store, chosen in zip(cache.layers, self._chosen, strict=True):
            kept = self._candidate_masks(store, cache.length)
            keep = own_mask(kept, chosen)
            if not bool((keep | (store.positions() < 0)).all()):
                self._record_ranking(store, kept, chosen, cache.length)
                store.keep_where(keep)

    def notes(self) -> dict[str, Any] | None:
        if not self._profile:
            return None
        profile, self._profile = torch.stack([x[:, 0] for x in self._profile]), []  # [L, 5, H_kv]
        recovered = {x: values_by_head(profile[:, i]) for i, x in enumerate(CANDIDATES[:-1])}
        return {"recovered": recovered, "chosen": values_by_head(torch.stack([x[0] for x in self._chosen]))}
