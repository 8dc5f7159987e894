"""The books of the target's cache: what each step appended and evicted must explain what it held."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..records.events import CacheChange, Header, Pass, Plan, Prefill, Scores
from ..records.parts import part_description, zone_entries, zones
from ..records.phases import is_deciding_pass

# Evictions that are followed by position; a run that lists more is followed by numbers alone.
FOLLOWED = 500_000
LANE = "target"  # a draft's lane forgets what was refused, so its books do not add up by commits alone


class CacheValidator:
    """Counts the entries of every layer and KV head of the target from the changes that a trace records.

    Calls `report(where, what)` for each contradiction. `checked` counts the changes that could be followed: none if
    the reading of the prompt, where the bookkeeping begins, was not recorded. `judged` counts the scores of entries that were
    compared with what left.
    """

    def __init__(self, header: Header, report: Callable[[str, str], None]):
        layers, heads = header.model.get("n_layers", 1), header.model.get("n_kv_heads", 1)
        small = type(layers) is int and type(heads) is int and 0 < layers * heads < 1 << 20
        self._shape = (layers, heads) if small else (1, 1)
        self._held: np.ndarray | None = None  # int [L, H_kv], as far as it is known
        self._read = self._prompt = 0  # tokens that were taken up, and those of the prompt
        self._gone: set[tuple[int, int, int]] = set()  # (layer, KV head, position); -1: in all of them
        # the same by layer, KV head and position, but for the rows `_fresh`
        self._out = np.zeros((*self._shape, 0), bool)
        self._fresh: list[np.ndarray] = []  # int [E, 3] each
        self._followed = True  # True if `_gone` has all of them
        self._report = report
        self.checked = self.judged = 0
        protected = [zone_entries(zones(header), place) or 0 for place in ("first", "newest")]
        # before its turn a fork had another policy
        self._protected = protected if header.fork is None else [0, 0]
        # the prompt's plan may belong to another policy than the header's
        self._forked = header.fork is not None
        self._once = bool(part_description(header, "policy").get("once"))
        self._most: np.ndarray | None = (
            None  # int [L, H_kv], entries that the policy's plan allows; -1: any number
        )
        self._lacks = np.zeros(self._shape[0], bool)  # layers that got no entry of some tokens
        self._aside = 0  # entries without tokens, as far as recorded

    def begin(self, prefill: Prefill, n: int) -> None:
        """Open the books with the reading of a prompt of `n` tokens."""
        self._held, self._prompt = np.zeros(self._shape, np.int64), n
        self.enter("prefill", prefill.cache, n)

    def lose(self) -> None:
        """Stop following: the cache is another one from here on."""
        self._held = None
        self._most = None
        self._gone = set()
        self._out, self._fresh = np.zeros((*self._shape, 0), bool), []

    def enter(self, where: str, changes: list[CacheChange], n: int) -> None:
        """Follow the changes of one step, after which the text has `n` tokens."""
        for change in changes:
            if change.lane == LANE:
                self._aside += sum(x.entries for x in change.augmented or [])
                if any(x.at > n for x in change.augmented or []):
                    self._report(
                        where, f"its cache has an entry behind a text of {n} tokens that belongs to no token"
                    )
                if change.reference is not None and len(change.reference.drift) != change.appended:
                    rows = len(change.reference.drift)
                    self._report(
                        where, f"its cache records the drift of {rows} rows, and it took up {change.appended}"
                    )
                self._enter(where, change, n)

    def check_read_shapes(self, where: str, passes: list[Pass]) -> None:
        """Check that what the target's passes read has the layers and KV heads of the model."""
        for one in passes:
            rows = one.read if one.lane == LANE and one.read is not None else []
            bounds = one.bounds if one.lane == LANE and one.bounds is not None else []
            if rows and (len(rows), {*map(len, rows)}) != (self._shape[0], {self._shape[1]}):
                self._report(where, "a pass read entries of other layers or KV heads than the model has")
            if bounds and len(bounds) != self._shape[0]:
                self._report(where, "a pass read bounds of other layers than the model has")

    def check_extra_entries(self, where: str, passes: list[Pass]) -> None:
        """Check that the passes that verify drafts read all entries without tokens recorded before."""
        for one in passes:
            if is_deciding_pass(one) and (one.aside or 0) != self._aside:
                self._report(
                    where,
                    f"a pass read {one.aside or 0} entries without tokens, and {self._aside} were there",
                )

    def _enter(self, where: str, change: CacheChange, n: int) -> None:
        freed = sum(
            map(len, change.freed or ())
        )  # in each KV head; their places are those of their own texts
        lacks = change.lacks is not None and len(change.lacks) == len(self._lacks)
        if lacks:
            self._lacks |= np.array(change.lacks) > 0
        self._check_absent(where, change, n)
        if change.scores is not None:
            self._check_scores(where, change, change.scores, n)
        listed = self._evictions(where, change, n)
        if freed and freed != change.evicted_count:
            self._report(
                where, f"its cache evicted {change.evicted_count} entries, and {freed} went with threads"
            )
        listed = freed if freed and listed is None else listed
        if change.merged is not None and self._followed:
            self._check_mergers(where, change.merged, n)
        if self._held is None:
            return
        if listed is None:  # evictions were counted, not listed: nothing can be followed from here on
            self._held = None
            return
        self._read += change.appended
        self._held += change.appended
        if lacks:
            self._held -= np.array(change.lacks)[:, None]
        self._held -= listed
        self.checked += 1
        if (self._held < 0).any():
            self._report(where, "its cache evicted more entries than it held")
        if int(self._held.max()) != change.held:
            self._report(
                where,
                f"its cache says that it holds {change.held} entries, but the changes give {self._held.max()}",
            )
            self._held = None  # reported once
        elif change.by_head is not None and not np.array_equal(self._held, change.by_head):
            self._report(
                where,
                "its cache says that layers or KV heads hold other numbers of entries than the changes give",
            )
            self._held = None
        else:
            self._check_plan(where, change.plan, self._held)

    def _check_absent(self, where: str, change: CacheChange, n: int) -> None:
        """Check that the places without an entry are as many as each layer lacks."""
        if change.absent is None and change.filled is None:
            return
        lacks = np.zeros(len(self._lacks), np.int64)
        for stretches, sign in ((change.absent, 1), (change.filled, -1)):
            if stretches is None:
                continue
            layer, first, stop = stretches.astype(np.int64).T
            if (layer >= len(lacks)).any() or (stop > n).any():
                self._report(
                    where,
                    f"its cache lacks an entry in a layer or behind a text of {n} tokens that is not there",
                )
                return
            np.add.at(lacks, layer, sign * (stop - first))
        if lacks.tolist() != (change.lacks or [0] * len(lacks)):
            self._report(
                where, "its cache lacks other numbers of entries by layer than the places that it names"
            )

    def _check_plan(self, where: str, plan: Plan | None, held: np.ndarray) -> None:
        """Check that a policy that cuts once leaves what it planned of the prompt, and any other never more than it planned.
        The record does not say which of them settled a fork's plan."""
        if plan is not None and plan.entries.shape != self._shape:
            self._report(where, "its cache has a plan for other layers or KV heads than the model has")
        elif self._forked:
            return
        elif plan is not None and self._once:
            due = np.minimum(plan.entries, self._prompt) + self._read - self._prompt
            # a layer that lacks entries holds no more
            wrong = np.where(self._lacks[:, None], held > due, held != due)
            if wrong[plan.entries >= 0].any():
                self._report(where, "its cache does not hold what was planned of the prompt")
        elif plan is not None:
            self._most = plan.entries
        if self._most is not None and (held > self._most)[self._most >= 0].any():
            self._report(where, "its cache holds more entries in a KV head than were planned")

    def _evictions(self, where: str, change: CacheChange, n: int) -> np.ndarray | int | None:
        """Entries evicted by layer and KV head, or None when they were only counted."""
        if change.evicted is None and change.evicted_all is None:
            return None if change.evicted_count else 0
        total: np.ndarray | int = 0
        rows: list[np.ndarray] = []
        if change.evicted_all is not None:
            total = len(change.evicted_all)
            everywhere = np.full((total, 2), -1)
            rows.append(np.column_stack([everywhere, change.evicted_all]))
        if change.evicted is not None:
            by_head = np.zeros(self._shape, np.int64)
            inside = ((change.evicted[:, :2] >= 0) & (change.evicted[:, :2] < by_head.shape)).all(axis=1)
            if not bool(inside.all()):
                self._report(where, "its cache evicted from a layer or KV head that the model has not")
            np.add.at(by_head, tuple(change.evicted[inside, :2].T), 1)
            total = total + by_head
            rows.append(change.evicted)
        self._followed &= len(self._gone) + sum(map(len, rows)) <= FOLLOWED
        if self._followed:
            self._follow(where, [tuple(row) for some in rows for row in some.tolist()], n)
            self._fresh += [x.astype(np.int64) for x in rows]
        return total

    def _check_scores(self, where: str, change: CacheChange, scores: Scores, n: int) -> None:
        """Check that evicted entries scored no more than those kept for their score, and that protected entries stayed."""
        entries = scores.entries
        if scores.cut.shape != self._shape or (entries is not None and not 0 < entries.shape[2] <= n):
            self._report(
                where,
                f"its cache has scores of other layers, KV heads or positions than the model and {n} tokens",
            )
            return
        if entries is None:
            return
        here, left = ~np.isnan(entries), np.zeros(entries.shape, bool)
        if change.evicted is not None:
            inside = ((change.evicted >= 0) & (change.evicted < entries.shape)).all(1)
            left[tuple(change.evicted[inside].T)] = True
        if change.evicted_all is not None:
            left[
                ..., change.evicted_all[(change.evicted_all >= 0) & (change.evicted_all < entries.shape[2])]
            ] = True
        cut = np.where(here & ~left, entries, np.inf).min(2)
        if not np.array_equal(np.isnan(scores.cut), ~here.any(2)) or (cut != scores.cut)[here.any(2)].any():
            self._report(where, "its cache records another threshold than the lowest score that stayed")
        if (np.where(here & left, entries, -np.inf) > cut[..., None]).any():
            self._report(where, "its cache let an entry go that scored more than one that stayed")
        first, newest = self._protected
        at = np.arange(entries.shape[2])
        last = np.where(here, at, -1).max(2)[..., None]  # the newest of a head is always held,
        last[self._lacks] = last.max()  # or was never there, in a layer that some tokens did not run
        if (np.isfinite(entries) & ((at < first) | (at > last - newest))).any():
            self._report(where, "its cache judged an entry by its score that is protected by its place")
        if self._followed and (here & self._evicted_before(entries.shape[2])).any():
            self._report(where, "its cache has a score of an entry that had left before")
        self.judged += int(here.sum())

    def _evicted_before(self, n: int) -> np.ndarray:
        """bool [L, H_kv, n]: whether an entry had left before."""
        if n > self._out.shape[2]:
            self._out = np.pad(self._out, ((0, 0), (0, 0), (0, n - self._out.shape[2])))
        for rows in self._fresh:
            known = rows[(rows[:, 2] >= 0) & (rows[:, 2] < self._out.shape[2])]
            everywhere = (known[:, :2] == -1).all(1)
            self._out[..., known[everywhere, 2]] = True
            inside = ((known[:, :2] >= 0) & (known[:, :2] < self._shape)).all(1)
            self._out[tuple(known[inside].T)] = True
        self._fresh = [x for rows in self._fresh if len(x := rows[rows[:, 2] >= self._out.shape[2]])]
        return self._out[..., :n]

    def _check_mergers(self, where: str, merged: np.ndarray, n: int) -> None:
        """Check that merged entries have left, and that their targets are there."""
        for layer, head, source, target in merged.tolist():
            left, lost = (
                (layer, head, x) in self._gone or (-1, -1, x) in self._gone for x in (source, target)
            )
            if not -1 <= target < n:
                self._report(
                    where, f"its cache merged position {source} into {target} of a text of {n} tokens"
                )
            elif not left:
                self._report(where, f"its cache merged position {source}, which has not left")
            elif lost:
                self._report(where, f"its cache merged position {source} into {target}, which is gone")

    def _follow(self, where: str, rows: list[tuple[int, int, int]], n: int) -> None:
        """Check that evicted entries were there."""
        for layer, head, position in rows:
            if not 0 <= position < n:
                self._report(where, f"its cache evicted position {position} of a text of {n} tokens")
            elif (layer, head, position) in self._gone or (-1, -1, position) in self._gone:
                self._report(where, f"its cache evicted position {position} a second time")
            self._gone.add((layer, head, position))
