"""Branches: several texts in one cache of one sequence, each entry held once, and one pass for all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.store import plan_hole_moves

from ..bases.lane import Lane
from ..bases.policy import CHUNK


@dataclass(eq=False)
class TextBranch:
    """A text with entries for its first `held` tokens.

    like: a branch with the same tokens before `upto`, which reads those that neither has read for both
    """

    tokens: list[int]
    held: int
    like: TextBranch | None = None
    upto: int = 0


@dataclass
class _PassRows:
    """The rows of a pass: the branch number of each row, their tokens, and which rows belong to each branch."""

    owners: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    of: list[list[int]] = field(default_factory=list)


class TextBranches:
    """Texts that may begin and end at any time, with any length. One may go on from any place of another: it reads that
    text's entries, which are held once for all readers. A pass reads rows of all texts; each row sees the entries and
    rows of its own text alone. An entry without readers is freed at once.

    The cache keeps one sequence, in no order once there are two texts (`KVCache.track_positions`). A table, bool [texts,
    entries], says which entries each text reads; a pass gets it as `Feed.seen`. As long as there is only one text, its passes
    are those of plain decoding. All attention is one masked product, as with the plan "dense" of a tree.

    The table has a byte for each text and entry. An entry's keys and values have 2 x layers x KV heads x width numbers. With 32
    texts this is 32 bytes, next to 8 KiB for a model of 8 layers, 4 KV heads and width 32 in float32. What each row of a pass
    sees has to be written out anyway, a byte for each row and entry. So it stays a table, and is not a list of ranges.

    alive: the texts, a parent before its children where both are there
    """

    def __init__(self, lane: Lane, tokens: Sequence[int]):
        """Start with one text, `tokens`; `lane` has read the beginning of it."""
        self.lane = lane
        self.alive = [TextBranch(list(tokens), len(lane.tokens))]
        self._sees: Tensor | None = None  # bool [B, n], once there are two; None: all is seen

    def fork(self, parent: TextBranch, length: int, behind: Sequence[int]) -> TextBranch:
        """A text that goes on with `behind` (ids) after the first `length` tokens of `parent`; at least its last token is to be
        read."""
        tokens = [*parent.tokens[:length], *behind]
        upto = min(length, len(tokens) - 1)
        branch = TextBranch(tokens, min(parent.held, upto))
        if branch.held < upto:
            branch.like, branch.upto = parent, upto
        sees = self._separate_texts()
        own = sees[self.alive.index(parent)]
        if branch.held < parent.held:
            own = own & (self.lane.cache.layers[0].positions()[0, 0] < branch.held)
        self._sees = torch.cat([sees, own[None]])
        self.alive.append(branch)
        return branch

    def _separate_texts(self) -> Tensor:
        """The entries that each text sees, now that there are several texts."""
        if self._sees is None:
            self.lane.cache.track_positions()
            for store in self.lane.cache.layers:
                store.evicted = None  # a place in the text names no entry, where texts share places
            self._sees = torch.ones(
                1, self.lane.cache.layers[0].n, dtype=torch.bool, device=self.lane.decoder.device
            )
        return self._sees

    def end(self, branch: TextBranch) -> list[int]:
        """A text is over: its entries go, but for those that others read. The last of all keeps its own. The places in the text
        of those that went, ascending."""
        at = self.alive.index(branch)
        heirs = [x for x in self.alive if x.like is branch]
        for heir in heirs:  # the first of those that waited for its rows reads them for all
            heir.like = None if heir is heirs[0] or heir.upto > heirs[0].upto else heirs[0]
        del self.alive[at]
        if self._sees is None or not self.alive:
            return []
        sees = torch.cat([self._sees[:at], self._sees[at + 1 :]])
        dead = (~sees.any(0)).nonzero().flatten().tolist()
        freed: list[int] = []
        if dead:
            freed = self.lane.cache.layers[0].positions()[0, 0, dead].sort().values.tolist()
            holes, tail = plan_hole_moves(dead, sees.shape[1])
            sees[:, holes] = sees[:, tail]
            sees = sees[:, : sees.shape[1] - len(dead)]
            for store in self.lane.cache.layers:
                store.evict_same(dead)
            self.lane.cache.shrink()
        self._sees = sees if len(self.alive) > 1 else None
        return freed

    def read(self, whole: Collection[TextBranch] = ()) -> None:
        """Read all texts but for their last tokens, those of `whole` to their ends, chunk by chunk."""
        while True:
            rows = self._rows([len(x.tokens) - (x not in whole) for x in self.alive], CHUNK)
            if not rows.tokens:
                break
            self.lane.forward(self._build_feed(rows, "last"), "prefill")
            self._commit(rows, compress=False)
        self.lane.cache.shrink()

    def step(self) -> Tensor:
        """One pass in which every text reads what it has not read: logits float [B, V] after each of them."""
        rows = self._rows([len(x.tokens) for x in self.alive])
        last = [own[-1] for own in rows.of]
        logits = self.lane.forward(
            self._build_feed(rows, "all" if last == list(range(len(rows.tokens))) else last)
        )[0]
        self._commit(rows)
        return logits

    def step_all_logits(self) -> list[Tensor]:
        """The same pass: for each text logits float [r, V], after each of the r tokens that it had not read."""
        rows = self._rows([len(x.tokens) for x in self.alive])
        logits = self.lane.forward(self._build_feed(rows, "all"))[0]
        self._commit(rows)
        return [logits] if len(rows.of) == 1 else [logits[own] for own in rows.of]

    def _rows(self, stops: Sequence[int], most: int | None = None) -> _PassRows:
        """Rows that read each text up to stops[b], at most `most` of them."""
        rows, at = _PassRows(), dict[tuple[int, int], int]()
        for b, branch in enumerate(self.alive):
            own: list[int] = []
            other = -1 if branch.like is None else self.alive.index(branch.like)
            for place in range(branch.held, stops[b]):
                row = at.get((other, place)) if place < branch.upto else None
                if row is None:
                    row = len(rows.tokens)
                    if row == most or (other >= 0 and place < branch.upto):
                        break  # for the next pass
                    rows.owners.append(b)
                    rows.tokens.append(branch.tokens[place])
                    rows.places.append(place)
                at[b, place] = row
                own.append(row)
            rows.of.append(own)
        return rows

    def _build_feed(self, rows: _PassRows, logits: Literal["all", "last"] | list[int]) -> Feed:
        device = self.lane.decoder.device
        if self._sees is None:
            return Feed.causal_chain(rows.tokens, rows.places[0], device, logits)
        owners, places = torch.tensor(rows.owners, device=device), torch.tensor(rows.places, device=device)
        visible = self._rows_of_texts(rows)[owners] & (places <= places[:, None])
        return Feed(
            torch.tensor([rows.tokens], device=device),
            places[None],
            visible[None],
            logits=logits,
            seen=self._sees[owners][None],
            highest=max(rows.places),
        )

    def _rows_of_texts(self, rows: _PassRows) -> Tensor:
        """bool [B, T]: which rows belong to each text."""
        mine = torch.zeros(len(rows.of), len(rows.tokens), dtype=torch.bool)
        for own, those in zip(mine, rows.of, strict=True):
            own[those] = True
        return mine.to(self.lane.decoder.device)

    def _commit(self, rows: _PassRows, compress: bool = True) -> None:
        self.lane.commit(list(range(len(rows.tokens))), compress)
        if self._sees is not None:
            self._sees = torch.cat([self._sees, self._rows_of_texts(rows)], 1)
        for branch, own in zip(self.alive, rows.of, strict=True):
            branch.held += len(own)
            if branch.held >= branch.upto:
                branch.like = None
