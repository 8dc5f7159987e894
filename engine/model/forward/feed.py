"""Feed: what one forward pass reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..stores.sparse_read import SparseRead


class Band(NamedTuple):
    """Of the text before it a row sees the `first` positions and the `newest`, and itself. Places in the cache are then those
    in a cache which holds no more than these when the row comes.

    heads: by layer and KV head, whether it holds for them; the others see everything. None: for all
    """

    first: int
    newest: int
    heads: tuple[tuple[bool, ...], ...] | None = None


class MiddleRead(NamedTuple):
    """Each query head reads the `entries` with the largest scores among those that are neither first nor near, in the layers
    from `layer` on. Each counts as if it were `away` from the row; a row that has fewer of them reads none."""

    entries: int
    away: int
    layer: int


class AttentionSinks(NamedTuple):
    """The first entries of a text, which are kept permanently and are closer to a row than in the text once others have left.

    first: how many. They are in the first slots of their store: an eviction after them does not move them
    cap:   None: each has a place in the cache, right before the oldest of the others. A number: each has this distance from
           any row that is at least as far away; of the other entries a row sees those that are closer than that
    middle: what a row reads in addition, with a cap, if a text is not read in a band; None: nothing
    """

    first: int
    cap: int | None = None
    middle: MiddleRead | None = None


@dataclass
class Feed:
    """The rows of one forward pass, in the order in which their K/V are written.

    tokens:    int64 [B, T]
    positions: int64 [B, T] original positions; siblings of a tree share one
    visible:   bool [B or 1, T, m + T] or None. Query i may see pending entry or fed row j; the m entries that were
               pending before come first. None: each row sees the pending ones and the rows before it, or, by a model
               without a causal mask, all rows
    seen:      which of the committed entries a row may see: those "before" it in the text, or by slot, bool [1, T, n];
               None: all
    logits:    which rows the unembedding is applied to: "all", "last" (prefill), or these by number
    embeds:    float [B, T, d_model] or None; replaces the embedding of the rows marked in embed_rows (bool [T])
    enter:     layer at which the pass begins; the states that enter it are `states` [B, T, d_model]
    entries:   the layer at which each row of a chain enters, none above that of the row before it, the last at `enter`;
               `states` holds what enters there. In the layers below it a row is pending already. None: all at `enter`
    slots:     the number of last rows that have no token
    prefix:    what these rows alone attend to in every layer in addition to the text, float [L, 2, H_kv, P, D] or None: keys,
               for queries that are not rotated, so that they have the same distance from every row, and values
    band:      what a row sees of the text before it; None: all that is held
    sinks:     the entries with a distance other than that of the text; None: all are where they were
    board:     what its layers share while they choose what they read; None: they read all that is held
    shift:     entries without tokens before the rows: rows are rotated this far after their place in the text
    highest:   the largest of `positions`, known without asking the device; -1: look it up
    ids:       the tokens of sequence 0, likewise known; None: look them up
    length:    rows fed per sequence, T
    """

    tokens: Tensor
    positions: Tensor
    visible: Tensor | None = None
    logits: Literal["all", "last"] | list[int] = "all"
    embeds: Tensor | None = None
    embed_rows: Tensor | None = None
    enter: int = 0
    states: Tensor | None = None
    slots: int = 0
    prefix: Tensor | None = None
    band: Band | None = None
    sinks: AttentionSinks | None = None
    board: SparseRead | None = None
    highest: int = -1
    shift: int = 0
    seen: Literal["before"] | Tensor | None = None
    entries: list[int] | None = None
    ids: Sequence[int] | None = None
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = self.tokens.shape[1]
        if self.highest < 0:
            self.highest = int(self.positions.max())

    @classmethod
    def causal_chain(
        cls,
        tokens: list[int],
        start: int,
        device: torch.device | str = "cpu",
        logits: Literal["all", "last"] | list[int] = "all",
    ) -> Feed:
        """A chain of `tokens`, the first at position `start`; one sequence, under the model's own mask."""
        end = start + len(tokens)
        positions = position_range(start, end, device)
        fed = (
            position_range(tokens[0], tokens[0] + 1, device)
            if len(tokens) == 1
            else torch.tensor([tokens], device=device)
        )
        return cls(fed, positions, logits=logits, highest=end - 1, ids=tokens)

    def tokens_of(self, rows: Sequence[int]) -> list[int]:
        """The tokens of the rows `rows` of sequence 0."""
        if self.ids is None:
            self.ids = self.tokens[0].tolist()
        return [self.ids[row] for row in rows]

    def deferred_rows(self, layer: int) -> int:
        """How many of the first rows have not entered when `layer` runs."""
        return 0 if self.entries is None else sum(x > layer for x in self.entries)

    def rows_from(self, row: int) -> Feed:
        """The rows of a chain from `row` on."""
        return replace(
            self, tokens=self.tokens[:, row:], positions=self.positions[:, row:], entries=None, ids=None
        )

    def select_rows(self, rows: Tensor, pending: int, chain: bool, among: bool) -> Feed:
        """`rows` (int64 [R], ascending) alone, with the same visibility as here. pending: entries that were pending before;
        among: True if the other rows leave entries too;  chain: True if each row by default sees those before it."""
        visible, seen = self.visible, self.seen
        if visible is None and chain:
            visible = torch.ones(
                1, self.length, pending + self.length, dtype=torch.bool, device=rows.device
            ).tril(pending)
        if visible is not None:
            visible = visible[:, rows]
            before = visible.shape[2] - self.length
            visible = (
                visible if among else torch.cat([visible[:, :, :before], visible[:, :, before + rows]], 2)
            )
        if seen is not None and not isinstance(seen, str):
            seen = seen[:, rows]
        tokens, positions = self.tokens[:, rows], self.positions[:, rows]
        more = dict(embeds=None, embed_rows=None, states=None, ids=None)
        return replace(self, tokens=tokens, positions=positions, visible=visible, seen=seen, **more)  # type: ignore[arg-type] # all None

    def prepend(self, tokens: Tensor, positions: Tensor) -> Feed:
        """These rows after others, a chain that they all see: tokens and positions int64 [B, W]. Nothing is pending yet."""
        before, visible = tokens.shape[1], self.visible
        if visible is not None:
            rows = before + self.length
            visible = torch.ones(len(visible), rows, rows, dtype=torch.bool, device=tokens.device).tril()
            visible[:, before:, before:] = self.visible  # type: ignore[assignment] # it is not None
        pairs = (tokens, self.tokens), (positions, self.positions)
        fed, places = (torch.cat(pair, 1) for pair in pairs)
        more = dict(embeds=None, embed_rows=None, states=None, ids=None)
        return replace(self, tokens=fed, positions=places, visible=visible, **more)  # type: ignore[arg-type] # all None

    @property
    def places(self) -> Tensor:
        """int64 [B, T]: the positions of the rows, including entries without tokens."""
        return self.positions + self.shift if self.shift else self.positions

    @property
    def rows(self) -> slice | list[int]:
        """The index of the rows with requested logits."""
        if isinstance(self.logits, list):
            return self.logits
        return slice(-1, None) if self.logits == "last" else slice(None)

    def deciding_rows(self, x: Tensor) -> Tensor:
        """The rows that decide when a pass leaves, of its states x [B, R, d_model], whose last rows are those fed. These are
        the rows named in `logits` if there are any, else all fed rows."""
        x = x[:, -self.length :]
        return x[:, self.logits] if isinstance(self.logits, list) else x


def position_range(start: int, end: int, device: torch.device | str) -> Tensor:
    """int64 [1, end - start]: start, start + 1, ...; a view of a cached tensor. Do not write into it."""
    return cached_arange(1 << end.bit_length(), device).narrow(1, start, end - start)


@lru_cache(maxsize=64)
def cached_arange(count: int, device: torch.device | str) -> Tensor:
    """int64 [1, count]: 0, 1, 2, ...; feeds take views of it. Cached; do not write into it."""
    with torch.inference_mode(False):  # who trains on a pass keeps what was in it
        return torch.arange(count, device=device)[None]
