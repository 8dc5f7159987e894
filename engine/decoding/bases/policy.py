"""CachePolicy: which KV entries a lane keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.component import Component, param
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.attention.segments import RopeMode
from decodescope.engine.model.forward.feed import AttentionSinks, Band
from decodescope.engine.model.layers.column import EntryColumn
from decodescope.engine.model.layers.vocabulary import CompanionNet
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.model.stores.sparse_read import SparseChoice, SparseRead
from decodescope.engine.trace.records.events import Piece
from decodescope.engine.trace.records.head_plan import Plan
from decodescope.engine.trace.records.parts import Zone, zone_entries

from ..values.prompt_attention import PromptAttention
from ..values.ranking import save_ranking

Deed = Literal["evict", "merge", "pack", "select"]
MOST = 65_536  # entries of a budget
CHUNK = 512  # prompt tokens read in one pass
POSITION_BYTES = 4  # of an entry's position, in each KV head
LEAST = 16  # minimum entries from a share of a short prompt: with fewer the shipped model's text falls apart


class CachePolicy(Component):
    """Base of every policy. It sees attention of committed rows only, and acts after a commit, never before a verdict.

    does:     what happens to entries: some leave ("evict"), are merged ("merge"), are stored in fewer bits ("pack"), or are
              held and not read by every pass ("select"); empty: all stay as they are
    goes:     a sentence: which entries leave, and when, as views and explanations show it
    columns:  name -> Column: what travels with each entry (engine/model/layers/column.py)
    column:   the one of them that records and views show;  weighs: what it adds up, in words
    rope:     where entries of the zone "first" are once others have left: where they were in the text ("original"), right
              before those that are held ("in_cache"), or just beyond the newest ("capped")
    bounded:  positions stay below a bound however long the text is: the context limit does not apply, if it is above the bound
    banded:   which entries leave is known without attention, so a prompt is read as if token by token: each token sees what
              would then be held
    strict:   its band also applies inside drafts: each row sees what it would see one by one, and drafts change no text
    once:     it cuts only once, when the prompt has ended: what is written afterwards stays, and the budget is the prompt's.
              The prompt's last token is then read alone, without a draft after it
    needs_reference: a full cache is kept next to the lane's, and the policy sees the attention of the full cache
    asks:     it reads tokens after the prompt has ended, to see what they attend to, and forgets them
    reads:    it gets the tokens of new entries (`read`)
    share:    the budget as a share of the prompt, for a policy with that knob; 0: off
    settled:  its plan for each KV head, until it is taken
    """

    kind = "policy"
    does: ClassVar[frozenset[Deed]] = frozenset({"evict"})
    goes: ClassVar[str] = ""
    columns: ClassVar[dict[str, EntryColumn]] = {}
    column: ClassVar[str] = ""
    weighs: ClassVar[str] = ""
    rope: ClassVar[RopeMode] = "original"
    bounded: ClassVar[bool] = False
    banded: ClassVar[bool] = False
    strict: ClassVar[bool] = False
    once: ClassVar[bool] = False
    asks: ClassVar[bool] = False
    reads: ClassVar[bool] = False
    budget_share: float = 0.0
    settled: Plan | None = None

    @property
    def needs_reference(self) -> bool:
        """True if it uses the attention of a full cache next to the lane's."""
        return False

    @property
    def zones(self) -> tuple[Zone, ...]:
        """Which entries of a layer and KV head it keeps for which reason, in the order of the text; none: it keeps all."""
        return ()

    @property
    def budget(self) -> int | None:
        """Entries that a layer and KV head holds after a commit, at most; None: no bound."""
        return sum(zone.entries for zone in self.zones) if self.zones else None

    @property
    def band(self) -> Band | None:
        """What a token of a prompt sees of the tokens before it; None: all of them."""
        return (
            Band(zone_entries(self.zones, "first") or 0, zone_entries(self.zones, "newest") or 0)
            if self.banded
            else None
        )

    @property
    def sink_places(self) -> AttentionSinks | None:
        """The entries with a distance other than that of the text; None: all entries are where they were."""
        if self.rope == "original":
            return None
        first, newest = (zone_entries(self.zones, place) or 0 for place in ("first", "newest"))
        if self.rope == "in_cache" and not first:
            return None
        return AttentionSinks(first, newest + 1 if self.rope == "capped" else None)

    @property
    def selects(self) -> bool:
        """True if it chooses what a pass reads (`select`)."""
        return "select" in self.does

    def can_exceed_context(self, spec: ModelSpec, prompt: int) -> bool:
        """True if a text with a prompt of `prompt` tokens may grow beyond the context of a model: the policy is `bounded`, and
        the entries that it keeps fit into that context together with one more."""
        kept = entries_from_share(self, self.budget_share, prompt) if self.budget_share else self.budget
        return self.bounded and (kept is None or kept < spec.max_positions)

    @property
    def lossless(self) -> bool:
        """True if the target's distribution is unchanged."""
        return not self.does

    def max_entries(self, prompt: int, new: int) -> int:
        """Entries per layer and KV head that a run needs room for. The prompt is read before anything is evicted, or in chunks.
        The entries of a full cache next to the lane's are included."""
        beside = prompt + new if self.needs_reference else 0
        if self.budget is None:
            return beside + prompt + new
        read = min(prompt, self.budget + CHUNK) if self.banded else prompt
        return beside + max(read, min(prompt + new, self.budget))

    def held_bytes(self, spec: ModelSpec, bits: int, entries: int) -> int:
        """Bytes of `entries` entries in every layer and KV head, in numbers of `bits` bits, with what travels with each of
        them: its columns and, once others have been evicted, its position. Free room for further entries is not counted."""
        columns = sum(x.width * x.dtype.itemsize for x in self.columns.values())
        beside = columns + (POSITION_BYTES if "evict" in self.does else 0)
        heads = sum(map(spec.kv_at, range(spec.n_layers)))
        return spec.kv_bytes(entries, 1) * bits // 8 + heads * entries * beside

    def room(self, spec: ModelSpec, bits: int, entries: int) -> int:
        """Entries of a plain cache that take as much memory."""
        entry = max(1, spec.kv_bytes(1, 1)) * bits // 8
        return math.ceil(self.held_bytes(spec, bits, entries) / entry)

    def describe(self) -> dict[str, Any]:
        zones = [zone.record() for zone in self.zones]
        goes = {"goes": self.goes} if self.goes else {}
        once = {"once": True} if self.once else {}
        return {
            "does": sorted(self.does),
            "zones": zones,
            "column": self.weighs if self.column else "",
            **goes,
            **once,
        }

    def attach_heads(self, heads: Mapping[str, CompanionNet]) -> None:
        """Called once before `begin`, with what was trained on this model, by name."""

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        """Called once before the prompt of `prompt` tokens is read. A share of it becomes entries here, in the policy's knobs,
        so that the trace's header records both. A second call with as many tokens changes nothing. pieces: id -> piece of text,
        if there is a tokenizer;  marks: ids of its special tokens."""
        if self.budget_share:
            self.set_budget(entries_from_share(self, self.budget_share, prompt))

    def set_budget(self, budget: int) -> None:
        """Set the knobs to a total of `budget` entries."""

    def read(self, cache: KVCache, tokens: Tensor) -> None:
        """Called after each commit, before all else, where the policy `reads`: tokens int64 [B, R] of the R newest entries."""

    def select(self, layer: int, store: LayerStore, q: Tensor, board: SparseRead) -> SparseChoice | None:
        """What the rows of a pass read of a layer, if the policy selects; None: everything.

        Called in each pass after the prompt, layer by layer in order, once the keys of the rows are pending in `store`; not for
        a layer with a window of its own. q: float [B, H_kv, g, T, D], rotated as the keys are. What is not chosen is not
        read."""
        raise NotImplementedError

    def observe_columns(self, layer: int, store: LayerStore, columns: Tensor) -> None:
        """columns: float32 [B, H_kv, n], attention of the committed prompt rows summed over queries and group."""

    def observe(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        """rows: float32 [B, H_kv, g, R, n], weights of R newly committed queries over the n committed entries."""

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        """Called once, after the commit of the prompt's last token, and before the first `compress`: may evict, keep or
        rewrite entries by what `prompt` knows, which is gone afterwards."""

    def compress(self, cache: KVCache) -> None:
        """Called after each commit, the first time after that of the prompt's last token, which has then read all of the
        prompt and counts: may evict, keep or rewrite entries."""

    def notes(self) -> dict[str, Any] | None:
        """What it records of the step that has ended (`tells`), once; None: nothing."""
        return None

    @property
    def max_read_entries(self) -> int | None:
        """The most entries that a query head reads, if the policy selects; None: there is no such number."""
        return None

    def idle_reason(self, did: Activity) -> str:
        if not self.does or did.evicted or did.packed or did.picked:
            return ""
        if self.does == {"select"}:
            why = "" if self.max_read_entries is None else f": a query head may read {self.max_read_entries}"
            return f"{self.name} let every pass read all {did.held} entries{why}."
        why = "no head holds more than it may keep" if self.budget is None else f"its budget is {self.budget}"
        return f"{self.name} kept all {did.held} entries: {why}."


class ScoredPolicy(CachePolicy):
    """Base of policies that keep the most valuable entries: `score` gives the value of an entry, this class does the rest.

    Once more than `budget` entries are held, those with the lowest scores leave. Each KV head evicts its own, and all heads of
    a layer evict the same number. Zones that are "first" or "newest" never leave; of entries with equal scores the lower
    position stays. Eviction follows the commit, so under tree verification a score includes accepted nodes only.
    """

    goes = "Over its budget each KV head gives up the entries that are worth least; what is protected never leaves."

    def score(self, store: LayerStore) -> Tensor:
        """The values of the committed entries of a layer: float [B, H_kv, n], by slot (`store.positions` gives their
        positions)."""
        raise NotImplementedError

    def surplus(self, store: LayerStore) -> int:
        """Entries that each KV head of a layer has to give up; 0 or less: none."""
        assert self.budget is not None
        return store.n - self.budget

    def compress(self, cache: KVCache) -> None:
        alike: dict[
            tuple[int, int], list[LayerStore]
        ] = {}  # layers that hold as many and give up as many go together
        for store in cache.layers:
            if (gone := self.surplus(store)) > 0:
                alike.setdefault((store.n, gone), []).append(store)
        for (_, gone), stores in alike.items():
            scores = torch.stack([self.score(store) for store in stores])  # [L', B, H_kv, n]
            positions = torch.stack([store.positions().expand(scores.shape[1:]) for store in stores])
            slots = self.victims(scores, positions, cache.length, gone)
            for store, worth, chosen in zip(stores, scores, slots, strict=True):
                self.record_ranking(store, worth, cache.length)
                self.discard(store, chosen)

    def record_ranking(self, store: LayerStore, worth: Tensor, length: int) -> None:
        """Right before a cut: store the values of its entries (float [B, H_kv, n]) in `store`, if requested."""
        if store.ranked is not None:
            save_ranking(store, self.protect_scores(worth, store.positions(), length), self.column)

    def discard(self, store: LayerStore, slots: Tensor) -> None:
        """Let the entries `slots` (int64 [B, H_kv, e]) go; a policy that merges overrides it."""
        store.evict(slots)

    def victims(self, scores: Tensor, positions: Tensor, length: int, gone: int) -> Tensor:
        """int64 [..., gone]: the unprotected slots with the lowest scores; of equal ones the highest position. scores float,
        positions int [..., n], -1 where a head has none; length: tokens of text so far."""
        scores = self.protect_scores(scores, positions, length)
        if gone == 1:
            least = scores == scores.amin(-1, keepdim=True)
            return positions.masked_fill(~least, -1).argmax(-1, keepdim=True)
        latest = positions.argsort(dim=-1, descending=True)
        order = scores.gather(-1, latest).argsort(dim=-1, stable=True)
        return latest.gather(-1, order[..., :gone])

    def protect_scores(self, scores: Tensor, positions: Tensor, length: int) -> Tensor:
        """The scores, as in `victims`, with inf where an entry is protected."""
        first, newest = (zone_entries(self.zones, place) or 0 for place in ("first", "newest"))
        protected = (positions < first) | (positions >= length - newest)  # -1, no entry, is below any `first`
        return scores.masked_fill(protected, torch.inf)


def evict_oldest(cache: KVCache, protect: int, keep: int) -> None:
    """Bring every layer and head to the first `protect` positions and the newest `keep` entries.

    The heads of a layer must hold the same positions, as must layers that hold as many: so it is where nothing else evicts.
    """
    oldest: dict[
        tuple[int, int], list[int]
    ] = {}  # entries held, and the layer that lacks some -> slots that leave
    for store in cache.layers:
        gone = store.n - protect - keep
        if gone <= 0:
            continue
        key = store.n, -1 if store.missing is None else store.layer
        if key not in oldest:
            pos = store.positions()[0, 0]
            pos = pos.masked_fill(pos < protect, cache.length)
            oldest[key] = pos.topk(gone, largest=False).indices.tolist()
        store.evict_same(oldest[key])


def share_knob() -> Any:
    """The knob `share_knob` of a policy with a budget; `entries_from_share` converts it."""
    meaning = "total of entries to keep, as a share of the prompt; 0: the fixed numbers apply"
    return param(0.0, low=0.0, high=1.0, step=0.01, unit="of the prompt", help=meaning)


def entries_from_share(policy: CachePolicy, share: float, prompt: int) -> int:
    """Entries per layer and KV head for `share_knob` of a prompt of `prompt` tokens: rounded down, at least LEAST.

    Like the ratios of FMInference/H2O (h2o_hf/utils_hh) it is fixed once, by the prompt, and does not grow with the answer.
    Raises ParamError for more than MOST.
    """
    count = int(share * prompt + 1e-9)  # 0.29 * 100 must give 29 despite rounding
    if count > MOST:
        raise ParamError(
            f"{policy.name}.budget_share = {share:g}: of the prompt's {prompt} tokens it is {count} entries, "
            f"and a budget has at most "
            f"{MOST}; choose a share of at most {int(100 * MOST / prompt) / 100:g}."
        )
    return max(LEAST, count)
