"""Recorder: from what a step did to the record that a trace keeps of it. It changes the cost of a step, never its text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import sub
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.params import ParamError
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.details.consistency import token_ids
from decodescope.engine.trace.details.declarations import Form
from decodescope.engine.trace.details.levels import filter_details
from decodescope.engine.trace.details.shapes import CanvasDetail
from decodescope.engine.trace.records.events import (
    LEVELS,
    Augmented,
    CacheChange,
    DraftTree,
    Extra,
    Fields,
    Level,
    Piece,
    Step,
    Trials,
)

from ..bases.lane import Lane
from ..bases.state import Move, State
from ..values import ranking
from ..values.draft import Draft, Verdict
from ..values.draft_tops import draft_tops_record
from ..values.tops import near_ties, token_probabilities, tops_record, tops_without_draft
from .mass_map import record_mass

# numbers of one map of attention mass, by level; a larger one is thinned to as many
MASS = {"summary": 0, "decisions": 1 << 14, "full": 1 << 20}
LAWS = 1 << 18  # numbers of the distributions that "full" keeps of one step
# weights that "full" keeps of one step: of the asked layers as many, from the first on, as fit
ATTENTION = 1 << 19
Held = int | list[list[int]]  # entries by layer and KV head; a number where all hold as many


class Recorder:
    """level: "summary", "decisions" or "full"; layers: those whose attention "full" keeps (None: all).

    pieces: id -> piece of text, or None if there is no tokenizer
    """

    def __init__(
        self,
        level: Level = "decisions",
        pieces: Callable[[int], Piece] | None = None,
        layers: Sequence[int] | None = None,
    ):
        self.level: Level = level
        self.layers = layers
        self._pieces = pieces
        self._known: set[int] = set()
        self._held: dict[str, Held] = {}  # by lane
        self._read: dict[str, int] = {}
        self._peak: dict[str, int] = {}
        self._beside: dict[str, int] = {}  # lane -> extra KV already recorded
        self._fields: Fields | None = None
        self.forms: Mapping[str, Form] = {}  # what the details of the present method mean

    @property
    def decisions(self) -> bool:
        """True if draws, distributions and evictions are recorded."""
        return self.level != "summary"

    @property
    def levels(self) -> list[str]:
        """The levels recorded, for the header."""
        return list(LEVELS[: LEVELS.index(self.level) + 1])

    def needs(self, n_layers: int) -> Needs:
        """What the recorder itself needs from the target's passes. Raises ParamError for layers that the target does not
        have."""
        if self.layers is not None and not (self.layers and all(0 <= i < n_layers for i in self.layers)):
            raise ParamError(
                f"layers = {', '.join(map(str, self.layers)) or 'none'}: choose from the target's, 0 to {n_layers - 1}, at "
                "least one."
            )
        if self.level != "full":
            return Needs()
        layers = frozenset(range(n_layers) if self.layers is None else self.layers)
        return Needs("columns", layers, frozenset([*range(n_layers), "final"]))

    def attach(self, target: Lane) -> None:
        """Begin to watch the target's lane."""
        target.shown = self.decisions
        if self.decisions:
            target.log_evictions(scores=self.level == "full")
        if self.level == "full":
            target.watch = self._capture

    def forget(self) -> None:
        """A new trace begins: it has shown no piece yet."""
        self._known = set()

    def reset_counts(self, s: State) -> None:
        """The lanes of `s` are others than before: what they hold now is where the next step's changes begin."""
        lanes = (s.target, *s.lanes.values())
        self._held = {x.name: _entries_held(x.cache, x.decoder.spec) for x in lanes}
        self._read = {x.name: x.cache.length for x in lanes}
        self._beside = {x.name: len(x.cache.outside) for x in lanes}
        self._peak = {}

    def pieces(self, ids: Iterable[int]) -> dict[str, Piece]:
        """Pieces of the ids that the trace has not shown yet."""
        if self._pieces is None:
            return {}
        fresh = {x for x in ids if x not in self._known and x >= 0}
        if not fresh:
            return {}
        self._known |= fresh
        return {str(x): self._pieces(x) for x in sorted(fresh)}

    def step(self, s: State, move: Move, number: int, n: int, t_us: float, wall_us: float) -> Step:
        """The record of one step; n: committed tokens before it."""
        policy_us, s.target.policy_us = s.target.policy_us, 0.0
        reference_us = 0.0 if s.target.reference is None else s.target.reference.us
        passes = s.target.take_passes()
        for lane in s.lanes.values():
            passes = lane.take_passes() + passes
        verdict, draft = move.verdict, move.draft
        step = Step(
            number,
            n,
            round(t_us, 1),
            round(max(0.0, wall_us - reference_us), 1),
            move.emitted,
            move.origins,
            drafted=0 if draft is None else draft.drafted_count,
            accepted=0 if verdict is None else len(verdict.path),
            draft_us=round(move.draft_us, 1),
            verify_us=round(move.verify_us, 1),
            commit_us=round(max(0.0, move.commit_us - policy_us - reference_us), 1),
            policy_us=round(policy_us, 1),
            passes=passes,
            cache=self.cache(s),
            path=None if verdict is None else verdict.path,
            details=filter_details(self.level, move.details or (), self.forms) or None,
        )
        for done in passes:
            done.wall_us = round(done.wall_us, 1)
        if self.decisions:
            self._decisions(s, step, move)
        if self.level == "full":
            step.fields, self._fields = self._fields, None
            if move.logits is not None and move.draft is not None:
                step.fields = add_full_distributions(step.fields or Fields(), move.draft, move.logits)
        return step

    def _decisions(self, s: State, step: Step, move: Move) -> None:  # noqa: C901
        verdict, draft = move.verdict, move.draft
        shown = list(move.emitted)
        if draft is not None and verdict is not None:
            if draft.tokens:
                step.draft = draft_record(draft)
                shown += draft.tokens + draft.named
            if verdict.trials:
                step.trials = trial_columns(verdict)
            if verdict.token is not None:
                step.extra = Extra(verdict.token, verdict.origin, verdict.u, verdict.low, verdict.high)
            step.rule = verdict.rule
            step.forced = verdict.forced or None
            if move.logits is not None:
                step.tops = tops_record(draft, verdict, move.logits)
            vocab = s.target.decoder.vocab
            step.draft_tops = draft_tops_record(draft, verdict, vocab)
            shown += [] if step.draft_tops is None else step.draft_tops.ids.ravel().tolist()
        elif move.logits is not None and move.emitted:
            step.tops = tops_without_draft(move.logits[: len(move.emitted)])
        if step.tops is not None:
            shown += step.tops.ids.ravel().tolist()
            if s.sampler.greedy:
                step.tie = near_ties(step.tops, s.target.decoder.dtype)
        shown += _add_strategy_records(step, move)
        shown += [token for x in step.cache if x.reference is not None for token in x.reference.ids]
        if verdict is not None and not s.guidance.own:
            rows = [0, *(node + 1 for node in verdict.path)]
            step.choices = s.guidance.choices(rows[: len(move.emitted)], move.emitted) or None
            step.law = s.guidance.notes() or None
            shown += [token for choice in step.choices or () for token in choice.candidates]
        took = None if s.adaptive_depth.exact else s.adaptive_depth.take_exit()
        step.exits = [*(draft.exits if draft is not None else ()), *([] if took is None else [took])] or None
        shown += [x for left in step.exits or () for x in left.best or ()]
        step.sampler = s.sampler.state_summary(move.sampler_state) if s.sampler.stateful else None
        if move.logits is not None and move.sampler_state is not None:
            step.sampler = {
                **(step.sampler or {}),
                **(s.sampler.logits_summary(move.logits[0], move.sampler_state) or {}),
            } or None
        for detail in step.details or ():
            if isinstance(detail, CanvasDetail) and detail.confidence is None:
                detail.confidence = _candidate_confidence(detail, move.logits)
        shown += token_ids(step.details or (), self.forms)
        step.pieces = self.pieces(shown) or None

    def cache(self, s: State) -> list[CacheChange]:
        """What each lane's cache did since the last call."""
        return [self._change(lane) for lane in (s.target, *s.lanes.values())]

    def _change(self, lane: Lane) -> CacheChange:  # noqa: C901, PLR0915
        cache, spec = lane.cache, lane.decoder.spec
        held, read = _entries_held(cache, spec), cache.length
        before, was = self._held.get(lane.name), self._read.get(lane.name, 0)
        self._held[lane.name], self._read[lane.name] = held, max(read, was)
        # a draft's lane goes back where more guesses were refused than were made since
        appended = max(read - was, 0)
        full = spec.kv_bytes(read, cache.layers[0].kv.element_size()) * cache.layers[0].batch
        change = CacheChange(
            lane.name, appended, held if isinstance(held, int) else max(map(max, held)), cache.nbytes, full
        )
        if not isinstance(held, int) and min(map(min, held)) < change.held:
            change.by_head = np.array(held, np.int32)
        if cache.memory.peak > self._peak.get(lane.name, 0):
            change.peak_bytes = self._peak[lane.name] = cache.memory.peak
        if fresh := cache.outside[self._beside.get(lane.name, 0) :]:
            change.augmented = [Augmented(x.kind, x.at, x.entries, x.origin) for x in fresh]
            self._beside[lane.name] = len(cache.outside)
        if not isinstance(held, int) and any(store.heads is not None for store in cache.layers):
            change.head_bytes = np.array([store.bytes_by_head() for store in cache.layers], np.int64)
        change.lacks, lane.lacks = lane.lacks, None
        if cache.absent or cache.filled:
            filled = [(layer, i) for layers, at in cache.filled for layer in layers for i in at.tolist()]
            change.absent, change.filled = position_stretches(cache.absent), position_stretches(filled)
            cache.absent, cache.filled = [], []
        change.freed, lane.freed = lane.freed, None
        if lane.name == "target":
            lost = _count_lost(before, held, change.lacks, len(cache.layers), spec.n_kv_heads)
            change.evicted_count = max(0, appended + lost)  # a hypothesis may follow one that held less
        if [store for store in cache.layers if store.evicted]:
            logs = [take_evictions(store) for store in cache.layers]
            merged = take_mergers(cache)
            scores = ranking.take_scores(cache)
            if evictions_match(logs):
                change.evicted_all, change.evicted = evicted_positions(logs)
                change.merged, change.merged_by = merged
                change.scores = scores
            elif lane.name == "target":
                change.evicted_count = max(1, change.evicted_count)  # of some, which cannot be followed
        if lane.reference is not None:
            seen, lane.reference.us = lane.reference.take_record(), 0.0
            change.reference = seen if self.decisions else None
        change.packed = lane.kv_compression.take_packed(cache)
        change.kept_packed = lane.kv_compression.kept_bytes(cache)
        if lane.name == "target" and self.decisions:
            change.notes = lane.policy.notes()
            change.plan, lane.policy.settled = lane.policy.settled, None
        if nodes := cache.nodes():
            entry = spec.kv_bytes(1, cache.layers[0].kv.element_size())
            change.shared = np.array([(x.parent, x.first, x.stop, x.refs) for x in nodes], np.int32)
            change.shared_bytes = entry * sum((x.refs - 1) * (x.stop - x.first) for x in nodes)
        entries = len(cache.layers) * spec.n_kv_heads * cache.length
        if lane.policy.column:
            change.mass, change.thinned_mass = record_mass(lane, MASS[self.level])
        alone = cache.layers[0].kv.shape[1] == 1  # of several texts each reads what is its own
        if alone and lane.board is not None and lane.board.chosen and entries <= MASS[self.level]:
            change.read = lane.board.read_map(cache.layers).to(torch.uint8).cpu().numpy()
        return change

    def _capture(self, lane: Lane, rows: list[int], before: list[int]) -> None:
        """The committed rows' attention and norms, while the cache is still as they saw it."""
        if lane.probe is None or not lane.probe.rows:
            return
        layers = sorted(i for i in lane.probe.rows if self.layers is None or i in self.layers)
        seen, room = [], ATTENTION
        for i in layers:
            every = lane.pad_missing_rows(i, rows, lane.attention(i, rows, before))[0]
            # [H_kv, g, R, n], without those that had waited
            seen.append(every[:, :, every.shape[2] - len(rows) :])
            room -= seen[-1].numel()
            if room < 0:
                seen.pop()
                break
        layers = layers[: len(seen)]
        if len({x.shape for x in seen}) > 1:  # layers hold different numbers of entries: pad with zeros
            most = max(x.shape[-1] for x in seen)
            seen = [torch.nn.functional.pad(x, (0, most - x.shape[-1])) for x in seen]
        positions = [_padded_positions(lane, i, seen[0].shape[-1]) for i in layers]
        at = torch.tensor(rows, device=lane.decoder.device)
        norms = torch.full((lane.decoder.spec.n_layers + 1, len(rows)), torch.nan)
        for place, x in lane.probe.hidden.items():
            norms[-1 if place == "final" else int(place)] = x[0].float().norm(dim=-1)[at].cpu()
        self._fields = Fields(
            layers or None,
            torch.stack(seen).half().cpu().numpy() if seen else None,
            np.stack(positions) if seen else None,
            norms.numpy(),
        )


def _padded_positions(lane: Lane, layer: int, width: int) -> np.ndarray:
    store = lane.cache.layers[layer]
    held = store.positions()[0].expand(store.kv.shape[2], -1).to(torch.int32).cpu().numpy()  # [H_kv, n]
    return np.pad(held, ((0, 0), (0, width - held.shape[1])), constant_values=-1)


def draft_record(draft: Draft) -> DraftTree:
    """The draft as a record."""
    q = [1.0] * len(draft)
    if draft.q is not None and draft.q_row is not None and len(draft.q):
        drawn = [(i, row) for i, row in enumerate(draft.q_row) if row >= 0]
        rows, tokens = torch.tensor(
            [[row for _, row in drawn], [draft.tokens[i] for i, _ in drawn]], device=draft.q.device
        )
        for (i, _), value in zip(drawn, draft.q[rows, tokens].tolist(), strict=True):
            q[i] = value
    aside = draft.auxiliary_nodes or None
    return DraftTree(draft.tokens, draft.parents, q, draft.kind, draft.u, draft.source, draft.notes, aside)


def add_full_distributions(fields: Fields, draft: Draft, logits: Tensor) -> Fields:
    """`fields` with the step's full distributions, if they are not too large; the target's only if all nodes have theirs."""
    if logits.numel() + (0 if draft.q is None else draft.q.numel()) <= LAWS:
        if (
            len(logits) == len(draft) + 1
        ):  # a round that writes and judges at once has not yet read all that it judges
            fields.logits = logits.float().cpu().numpy()
        if draft.q is not None and draft.q_row is not None and len(draft.q):
            fields.laws, fields.law_of = draft.q.float().cpu().numpy(), np.array(draft.q_row, np.int32)
    return fields


def trial_columns(verdict: Verdict) -> Trials:
    """The trials as columns."""
    t = verdict.trials
    return Trials(
        [x.node for x in t],
        [x.p for x in t],
        [x.r for x in t],
        [x.q for x in t],
        [x.u for x in t],
        [x.threshold for x in t],
        [x.ok for x in t],
        _none_if_empty([x.num for x in t]),
        _none_if_empty([x.den for x in t]),
    )


def _candidate_confidence(canvas: CanvasDetail, logits: Tensor | None) -> np.ndarray | None:
    """float64 [O]: the probability of each candidate by logits [O, V]; None if these have other rows."""
    if logits is None or len(logits) != len(canvas):
        return None
    return np.array(token_probabilities(logits, canvas.candidate.tolist()))


def _none_if_empty(numbers: list[float | None]) -> list[float | None] | None:
    """The numbers, if there is one: where none is they are r and q."""
    return numbers if any(x is not None for x in numbers) else None


def take_evictions(store: Any) -> list[Tensor]:
    """The evictions that a LayerStore has logged since the last call."""
    log: list[Tensor] = store.evicted
    store.evicted = []
    return log


def evictions_match(logs: list[list[Tensor]]) -> bool:
    """True if all sequences lost the same entries. Hypotheses are reordered, so only what is true of all can be followed."""
    return all(bool((x == x[:1]).all()) for log in logs for x in log if len(x) > 1)


def evicted_positions(logs: list[list[Tensor]]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(positions that left everywhere, None), or (None, rows of layer, head, position), for sequence 0."""
    flat = [torch.cat([x[0] for x in log], 1) for log in logs if log]  # [H_kv, E] each
    if len(flat) == len(logs) and len({x.shape for x in flat}) == 1:
        block = torch.stack(flat)  # [L, H_kv, E]
        if bool((block == block[:1, :1]).all()) and bool((block[0, 0] >= 0).all()):
            return block[0, 0].sort().values.to(torch.int32).cpu().numpy(), None
    return None, evicted_by_layer(logs)


def take_mergers(cache: KVCache) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(rows of layer, head, position and the position that it went into; their similarity and weight), of what was merged since
    the last call, for sequence 0."""
    rows, by = [], []
    for layer, store in enumerate(cache.layers):
        log, store.merged = store.merged or [], []
        for merger in log:
            head, at = (merger.source[0] >= 0).nonzero(as_tuple=True)
            places = [x[0][head, at] for x in (merger.source, merger.target)]
            rows.append(torch.stack([torch.full_like(head, layer), head, *places], 1))
            by.append(torch.stack([merger.similarity[0][head, at], merger.weight[0][head, at]], 1))
    if not sum(map(len, rows)):
        return None, None
    return torch.cat(rows).to(torch.int32).cpu().numpy(), torch.cat(by).float().cpu().numpy()


def evicted_by_layer(logs: list[list[Tensor]]) -> np.ndarray:
    """int32 [E, 3]: (layer, head, position), for sequence 0."""
    rows = []
    for layer, log in enumerate(logs):
        for positions in log:
            head, slot = (positions[0] >= 0).nonzero(as_tuple=True)
            rows.append(torch.stack([torch.full_like(head, layer), head, positions[0][head, slot].long()], 1))
    return torch.cat(rows).to(torch.int32).cpu().numpy()


def position_stretches(pairs: Sequence[tuple[int, int]]) -> np.ndarray | None:
    """int32 [A, 3] (layer, first position, the one behind the last) of (layer, position) pairs; None: there are none."""
    stretches: list[list[int]] = []
    for layer, position in sorted(pairs):
        if stretches and stretches[-1][0] == layer and stretches[-1][2] == position:
            stretches[-1][2] += 1
        else:
            stretches.append([layer, position, position + 1])
    return np.array(stretches, np.int32) if stretches else None


def _entries_held(cache: KVCache, spec: ModelSpec) -> Held:
    """The entries that a lane's KV heads hold."""
    alike = cache.lengths()
    return alike if isinstance(alike, int) else [_head_lengths(store, spec) for store in cache.layers]


def _count_lost(before: Held | None, held: Held, lacks: list[int] | None, layers: int, heads: int) -> int:
    """The most entries by which a KV head holds less than `before`, without those that its layer lacks."""
    before = before or 0
    if isinstance(before, int) and isinstance(held, int) and lacks is None:
        return before - held
    old, now = ([[x] * heads] * layers if isinstance(x, int) else x for x in (before, held))
    lost: int = max(
        max(map(sub, a, b)) - lack for a, b, lack in zip(old, now, lacks or [0] * layers, strict=True)
    )
    return lost


def _head_lengths(store: LayerStore, spec: ModelSpec) -> list[int]:
    """Entries of each KV head of a layer. A head that was cut out of the model lacks none."""
    if store.heads is None:
        return [store.n] * spec.n_kv_heads
    lengths = store.lengths
    return lengths + [store.n] * (spec.n_kv_heads - len(lengths))


def _add_strategy_records(step: Step, move: Move) -> list[int]:
    """Put into the step what its strategy recorded itself; returns the ids that appear in it."""
    shown: list[int] = []
    step.looks, step.choices = move.looks or None, move.choices
    step.notes = move.notes
    shown += [token for choice in move.choices or () for token in choice.candidates]
    return shown
