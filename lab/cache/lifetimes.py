"""Lifetimes: when each entry of the target's cache came, how long each layer and head kept it, and why it left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from decodescope.engine.core.refusal import Refusal
from decodescope.engine.trace import Trace
from decodescope.engine.trace.details.declarations import CanvasForm
from decodescope.engine.trace.encoding.forks import reread_steps
from decodescope.engine.trace.records.events import CacheChange, Header, Prefill, Step
from decodescope.engine.trace.records.head_plan import Plan
from decodescope.engine.trace.records.parts import PLACES, part_description, zone_entries, zones
from decodescope.engine.trace.records.prompt import effective_prompt

from .entry_changes import EntryChanges
from .entry_states import absent_stretches, count_or_none, cut_rows
from .reference_loss import ReferenceLoss

KEPT = int(
    np.iinfo(np.int32).max
)  # "left at" of an entry that is still held, "came at" of one that never came
BY_READING = -1  # the step number of the prefill
MOST_POSITIONS = 1 << 22
MOST_ENTRIES = 1 << 26  # limit of rows times positions
MOST_HEADS = 1 << 12  # KV heads that are listed one by one
WORDS = {
    "S": "kept: one of the first entries, which never leave",
    "W": "kept: among the newest",
    "H": "kept: held on to although it is old",
    "K": "kept",
    "O": "left the window: it was the oldest that could go",
    "B": "over budget: it went although older ones stayed",
    "M": "merged: it became part of another entry",
    "A": "absent: this layer computed no entry of it",
    "C": "cut: the model has no such KV head",
}


NEVER = "AC"  # letters of entries that never were there


class EntryLifetimes:
    """Entry lifetimes of one run: when each position left each row; a row is a layer and KV head, layer by layer.
    `learn` takes the records of the run in order, the prefill first. Everything else may be queried at any time.

    tokens: of the text, by position;  length, held, bytes, full, evicted: per step, of the target's cache: positions read,
    entries of the fullest head, bytes of memory in whole pages, bytes of the entries had all been kept, entries lost
    sinks, heavy, near: number of entries that the policy keeps as the first, by choice and as the newest; None if unknown
    once: whether the policy cuts only when the prompt has been read: the numbers are then the prompt's, and written text stays
    budget: the sum of these numbers; None where written text comes on top
    cut: rows of KV heads that were cut out of the model, which hold nothing
    fates: other changes of the entries;  missed: the losses that an additional full cache measured
    went: the word for entries that left: a policy evicted them; if the policy keeps everything, the strategy freed them
    untold: whether some evictions were counted without being listed (level "summary")
    unplaced: why its entries have no lifetimes of their own; "": they have

    Evicted entries never come back, so one number per entry answers for every step. After a fork to another policy, the entries
    of each head are derived from the records alone.
    """

    def __init__(self, header: Header):
        self.header = header
        self.layers, self.heads = (
            max(1, count_or_none(header.model.get(x)) or 1) for x in ("n_layers", "n_kv_heads")
        )
        if self.rows > MOST_ENTRIES // 256:
            raise Refusal(f"The run has {self.rows:,} layers and heads, more than can be shown.")
        kept = zones(header)
        self.sinks, self.heavy, self.near = (zone_entries(kept, place) for place in PLACES)
        self.once = bool(part_description(header, "policy").get("once"))
        # else it only says what it never evicts, not how much it keeps
        whole = any(zone.place != "first" for zone in kept)
        self.budget = sum(zone.entries for zone in kept) if whole and not self.once else None
        self.tokens: list[int] = header.prompt.tolist()
        self.length: list[int] = []
        self.held: list[int] = []
        self.bytes: list[int] = []
        self.full: list[int] = []
        self.evicted: list[int] = []
        self.went = "evicted" if _may_evict(header) else "freed"
        self.untold = False
        self.unplaced = ""
        self._kept: list[int] = []
        self.prompt = 0  # positions read during the prefill
        self._read = 0
        self._left = np.full((self.rows, 256), KEPT, np.int32)
        self.cut = cut_rows(header)
        # int32 [layers, n]: the step from which a layer has the entry of a position; None: no layer ever lacked one
        self._came: np.ndarray | None = None
        self._chosen: tuple[int, bool] = (-1, False)
        self.fates = EntryChanges(self.heads, part_description(header, "kv_compression").get("bits"))
        self.missed = ReferenceLoss()
        self._plans: list[tuple[int, Plan]] = []  # the step, and the plan settled in it
        # steps with other entries in their caches
        self._anew = sorted(reread_steps(header, ("policy", "strategy")))
        self._by_head: dict[int, np.ndarray] = {}  # by first step of these: what the record says of each head

    @classmethod
    def of(cls, trace: Trace) -> EntryLifetimes:
        """The lifetimes of a whole run. Raises Refusal if its prefill was not recorded, since lifetimes start there."""
        lives = cls(trace.header)
        if trace.prefill is None:
            raise Refusal("The run holds no reading of its prompt, with which the lives of its cache begin.")
        lives.learn(trace.prefill)
        for step in trace.steps:
            lives.learn(step)
        return lives

    @property
    def rows(self) -> int:
        """Layers times KV heads."""
        return self.layers * self.heads

    @property
    def unlisted_reason(self) -> str:
        """Why it is unknown which entries left, as half a sentence; "": it is known."""
        if not self.untold:
            return ""
        if self.went == "evicted":
            return "which entries were evicted is not recorded in this run: record it with level “decisions”"
        return "which entries were freed is not recorded: texts that were read side by side had theirs at the same places"

    @property
    def count(self) -> int:
        """Number of steps learned so far."""
        return len(self.length)

    def learn(self, record: Prefill | Step) -> None:
        """Learn a record. Raises Refusal if it has more entries than can be shown."""
        change = next((x for x in record.cache if x.lane == "target"), None)
        if change is not None:
            i = self.count if isinstance(record, Step) else BY_READING
            self._grow(change.appended)
            self._record_absent(change, i)
            self._record_change(change, i)
        if isinstance(record, Prefill):
            self.prompt, self.tokens = self._read, effective_prompt(self.header, record)
            return
        if (canvas := record.detail_of("canvas")) is not None:
            form = self.header.details.get(canvas.name)
            self.unplaced = form.unread.get(canvas.cache, "") if isinstance(form, CanvasForm) else ""
        self.tokens += record.emitted
        self.length.append(self._read)
        for name, value in [
            ("held", "held"),
            ("bytes", "held_bytes"),
            ("full", "full_bytes"),
            ("evicted", "evicted_count"),
        ]:
            series = getattr(self, name)
            last = series[-1] if series and name != "evicted" else 0
            series.append(last if change is None else getattr(change, value))
        self.missed.learn(None if change is None else change.reference)
        before = self._kept[-1:] or [0]
        self._kept += before if change is None else [change.kept_bytes(self._read)]

    def _grow(self, appended: int) -> None:
        self._read += appended
        if self._read > MOST_POSITIONS or self.rows * self._read > MOST_ENTRIES:
            raise Refusal(
                f"The cache read {self._read:,} positions in {self.rows:,} layers and heads: too many to show."
            )
        if self._read > self._left.shape[1]:
            wider = np.full((self.rows, max(self._read, 2 * self._left.shape[1])), KEPT, np.int32)
            wider[:, : self._left.shape[1]] = self._left
            self._left = wider
            if self._came is not None:
                more = wider.shape[1] - self._came.shape[1]
                self._came = np.pad(self._came, ((0, 0), (0, more)), constant_values=BY_READING)

    def _record_absent(self, change: CacheChange, i: int) -> None:
        """Record in which layers positions have no entry, or have one only now."""
        for stretches, at in zip(absent_stretches(change, self._read), (KEPT, i), strict=True):
            for layer, first, stop in stretches.tolist():
                if self._came is None:
                    self._came = np.full((self.layers, self._left.shape[1]), BY_READING, np.int32)
                if 0 <= layer < self.layers:
                    part = self._came[layer, first : min(stop, self._read)]
                    part[(part == KEPT) | (at == KEPT)] = at

    def _record_change(self, change: CacheChange, i: int) -> None:
        """Record the entries that a change lost; entries that are not in this cache are ignored."""
        scored = False
        self.fates.learn(change, i)
        if change.plan is not None:
            self._plans.append((i, change.plan))
        if (
            self._anew
            and i >= self._anew[0]
            and change.by_head is not None
            and change.by_head.size == self.rows
        ):
            self._by_head[i] = change.by_head.ravel()
        if change.evicted_all is not None and len(change.evicted_all):
            gone = change.evicted_all.astype(np.int64)
            self._left[:, gone[(gone >= 0) & (gone < self._read)]] = i
            scored = True
        if change.evicted is not None and len(change.evicted):
            layer, head, at = change.evicted.astype(np.int64).T
            good = (
                (layer >= 0)
                & (layer < self.layers)
                & (head >= 0)
                & (head < self.heads)
                & (at >= 0)
                & (at < self._read)
            )
            self._left[(layer * self.heads + head)[good], at[good]] = i
            scored = True
        self.untold |= bool(change.evicted_count) and not scored

    # ---- one step

    def eviction_steps(self, i: int) -> np.ndarray:
        """int32 [rows, n]: the step in which each of the n positions read by step i left; later steps count as KEPT, and so do
        entries that were never there."""
        at = self._left[:, : self.length[i]]
        return np.where(at <= i, at, KEPT)

    def absent_mask(self, i: int) -> np.ndarray | None:
        """bool [rows, n]: the entries that are not there after step i because no pass computed them, or their head was cut;
        None: there are none."""
        if self._came is None and not self.cut:
            return None
        n = self.length[i]
        mask = np.zeros((self.rows, n), bool)
        if self._came is not None:
            mask |= np.repeat(self._came[:, :n] > i, self.heads, 0)
        mask[self.cut] = True
        return mask

    def held_mask(self, i: int) -> np.ndarray:
        """bool [rows, n]: the entries that are held after step i."""
        held = self._left[:, : self.length[i]] > i
        return held if (absent := self.absent_mask(i)) is None else held & ~absent

    def held_range(self, i: int) -> tuple[int, int]:
        """The fewest and the most entries that a KV head holds after step i, of those that are in the model."""
        if self.untold:
            return self.held[i], self.held[i]
        held = np.delete(self.held_mask(i).sum(1), self.cut)
        return (int(held.min()), self.held[i]) if len(held) else (0, 0)

    def held_bytes(self, i: int) -> int:
        """Bytes of the entries that are held after step i, counted as `full` counts all."""
        return self._kept[i]

    def creation_step(self, position: int) -> int:
        """The step in which a position's entry was made; BY_READING: with the prompt."""
        return (
            BY_READING
            if position < self.prompt
            else int(np.searchsorted(self.length, position, side="right"))
        )

    def step_at_length(self, length: int) -> int:
        """The last step after which at most `length` positions were read; the first step if there is none."""
        return max(0, int(np.searchsorted(self.length, length, side="right")) - 1)

    def window_start(self, n: int) -> int:
        """The first of the newest positions that the policy keeps, of n positions read."""
        return (min(n, len(self.header.prompt)) if self.once else n) - (self.near or 0)

    def letters(self, row: int, i: int, first: int, last: int) -> list[str]:
        """For each position first <= p < last, why it is held or gone in a row after step i: a key of WORDS."""
        became = self.fates.sources(i, row)
        return [self._letter(row, p, i, p in became) for p in range(first, min(last, self.length[i]))]

    def _letter(self, row: int, p: int, i: int, merged: bool) -> str:
        """The letter of one position; merged: whether it was merged into another entry in this row by step i."""
        if row in self.cut:
            return "C"
        if self._came is not None and self._came[row // self.heads, p] > i:
            return "A"
        if self._left[row, p] <= i:
            return self._eviction_letter(merged)
        if self.sinks and p < self.sinks:
            return "S"
        if self.near is not None and p >= self.window_start(self.length[i]):
            return "W"
        return "K" if self.near is None else "H"

    def _eviction_letter(self, merged: bool) -> str:
        """The letter of entries that left."""
        if merged:
            return "M"
        if self.evicts_by_score:
            return "B"
        return "O"

    @property
    def evicts_by_score(self) -> bool:
        """Whether entries leave by score, not by age: somewhere an older one that is no sink outlived a younger one."""
        if self._chosen[0] != self.count:
            first = self.sinks or 0
            at = self._left[:, first : self._read]
            if self._came is not None:  # what was never there has outlived nothing
                never = np.repeat(self._came[:, first : self._read] == KEPT, self.heads, 0)
                at = np.where(never, BY_READING - 1, at)
            falls = bool(self.heavy) or (
                at.shape[1] > 1
                and bool(
                    ((np.maximum.accumulate(at, 1)[:, :-1] > at[:, 1:]) & (at[:, 1:] >= BY_READING)).any()
                )
            )
            self._chosen = (self.count, falls)
        return self._chosen[1]

    def binned_map(
        self, i: int, columns: int, mass: np.ndarray | None, read: np.ndarray | None = None
    ) -> dict[str, Any]:
        """The map after step i in at most `columns` columns of equal width.

        Per row and column it has the share that is held, the share that was never there, whether something left in this step,
        the largest mass of the held entries, and the share that was read.

        uint8 [rows, columns] each; mass, read: uint8 [layers, heads, n], or None
        """
        n = self.length[i]
        width = max(1, -(-n // max(1, columns)))
        across = max(1, -(-n // width))
        flat = np.full((self.rows, across * width), -2, np.int32)
        flat[:, :n] = self._left[:, :n]
        absent = self.absent_mask(i)
        if absent is not None:
            flat[:, :n][absent] = -2
        at = flat.reshape(self.rows, across, width)
        here = np.full(across, width)
        here[-1] = n - (across - 1) * width if n else 1
        share = (at > i).sum(2) / here
        grid = {
            "bin": width,
            "columns": across,
            "kept": np.ceil(255 * share).astype(np.uint8),
            "now": (at == i).any(2),
        }
        if absent is not None:
            padded = np.zeros((self.rows, across * width), bool)
            padded[:, :n] = absent
            grid["absent"] = np.ceil(255 * padded.reshape(self.rows, across, width).sum(2) / here).astype(
                np.uint8
            )
        if mass is not None:
            padded = np.zeros((self.rows, across * width), np.uint8)
            shown = mass.reshape(self.rows, -1)[:, :n]
            padded[:, : shown.shape[1]] = shown
            grid["mass"] = padded.reshape(self.rows, across, width).max(2)
        if read is not None:
            seen = np.zeros((self.rows, across * width), np.uint8)
            shown = read.reshape(self.rows, -1)[:, :n]
            seen[:, : shown.shape[1]] = shown
            grid["read"] = np.ceil(255 * (seen.reshape(self.rows, across, width) > 0).sum(2) / here).astype(
                np.uint8
            )
        return grid

    def head_summary(self, i: int) -> dict[str, Any] | None:
        """The state of each KV head after step i, layer by layer.
        `held`: its number of entries; `due`: the number settled by the policy (None: no number); `kind`: an index into
        `kinds`, if there are any. None if all hold the same and nothing was settled, or if there are too many."""
        since = max((k for k in self._anew if k <= i), default=None)
        held = self.held_mask(i).sum(1) if since is None else self._by_head.get(i)
        if held is None or self.rows > MOST_HEADS:
            return None
        plan = next(
            (x for k, x in reversed(self._plans) if (BY_READING if since is None else since) <= k <= i), None
        )
        if plan is not None and plan.entries.shape != (self.layers, self.heads):
            plan = None
        if plan is None and len({*np.delete(held, self.cut).tolist()}) < 2:
            return None
        heads: dict[str, Any] = {"held": held.tolist(), "due": None, "kinds": [], "kind": None}
        if plan is not None:
            heads["due"] = [x if x >= 0 else None for x in plan.entries.ravel().tolist()]
            if plan.kind is not None:
                heads |= {"kinds": plan.kinds, "kind": plan.kind.ravel().tolist()}
        return heads

    # ---- one position

    def lifetime(self, position: int, i: int) -> list[tuple[int | None, str]]:
        """Per row the step in which the position left, if it has by step i, and the letter for why it left or stayed."""
        at = self._left[:, position]
        became = {x[0] for x in self.fates.of(position, i)["into"]}
        letters = [self._letter(row, position, i, row in became) for row in range(self.rows)]
        there = [letter not in NEVER for letter in letters]
        return [
            (int(left) if left <= i and held else None, letter)
            for left, letter, held in zip(at, letters, there, strict=True)
        ]

    def arrival_steps(self, position: int) -> list[int] | None:
        """Per row the step from which a position's entry is there, if some layer got it later than others, or never."""
        if self._came is None or (self._came[:, position] == BY_READING).all():
            return None
        return [int(x) for x in np.repeat(self._came[:, position], self.heads)]

    def table(self, i: int, first: int, last: int) -> list[dict[str, Any]]:
        """Lifetimes of the positions first <= p < last by step i.
        They say when each came, in how many rows it is held, and when it left first and last."""
        rows, became = [], self.fates.sources(i)
        masks, none = self.absent_mask(i), np.zeros(self.rows, bool)
        for p in range(first, min(last, self.length[i])):
            at, absent = self._left[:, p], none if masks is None else masks[:, p]
            gone = at[(at <= i) & ~absent]
            rows.append(
                {
                    "position": p,
                    "came": self.creation_step(p),
                    "kept": int(self.rows - len(gone) - absent.sum()),
                    "absent": int(absent.sum()),
                    "first": int(gone.min()) if len(gone) else None,
                    "last": int(gone.max()) if len(gone) else None,
                    "why": self._eviction_letter(p in became) if len(gone) else "",
                }
            )
        return rows

    # ---- the whole run

    def series(self, points: int) -> dict[str, list[Any]]:
        """Held and lost entries over the steps, in at most `points` points.
        A point has the state after the last step of its stretch, the losses in all of it, and the mean losses by a full
        cache (`missed`)."""
        every = max(1, -(-self.count // max(1, points)))
        at = [min(k + every, self.count) - 1 for k in range(0, self.count, every)]
        columns = {name: [getattr(self, name)[k] for k in at] for name in ("length", "held", "bytes", "full")}
        columns["kept"] = [self.held_bytes(k) for k in at]
        lost = [sum(self.evicted[k : k + every]) for k in range(0, self.count, every)]
        missed = self.missed.series(
            [range(k, min(k + every, self.count)) for k in range(0, self.count, every)]
        )
        return {"every": [every], "step": at, **columns, "evicted": lost, **missed}


def cache_overlap(a: EntryLifetimes, i: int, b: EntryLifetimes, j: int) -> dict[str, Any]:
    """Which entries two runs hold of the text that they share, `a` after step i and `b` after step j.

    Per row: the number held by both, by the first alone and by the second alone, and those positions.

    upto: the positions that are compared;  parted: whether the texts differ after them
    """
    same = common_prefix(a.tokens, b.tokens)
    upto = min(a.length[i], b.length[j], same)
    one, two = a.held_mask(i)[:, :upto], b.held_mask(j)[:, :upto]
    counts = np.stack([(one & two).sum(1), (one & ~two).sum(1), (two & ~one).sum(1)], 1)
    return {
        "upto": upto,
        "parted": upto == same,
        "counts": counts.tolist(),
        "jaccard": [
            both / max(1, both + first + second) if both + first + second else 1.0
            for both, first, second in counts.tolist()
        ],
        "only": [
            [position_ranges(np.flatnonzero(x & ~y)) for x, y in zip(first, second, strict=True)]
            for first, second in ((one, two), (two, one))
        ],
    }


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """The number of equal leading tokens."""
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def position_ranges(positions: np.ndarray) -> list[list[int]]:
    """Ascending positions as [first, last] of neighbours."""
    if not len(positions):
        return []
    breaks = np.flatnonzero(np.diff(positions) > 1)
    first, last = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(positions) - 1]])
    return [[int(positions[x]), int(positions[y])] for x, y in zip(first, last, strict=True)]


def _may_evict(header: Header) -> bool:
    """Whether a policy of the run may have evicted: one that does not describe itself may, and so may those of a fork."""
    does = part_description(header, "policy").get("does")
    return does is None or not {"evict", "merge"}.isdisjoint(does) or bool(reread_steps(header, ("policy",)))
