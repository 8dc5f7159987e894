"""ZipAR: the rows of a picture are written in parallel, each a few cells behind the row above it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import MOST_CELLS, ModelSpec
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.decoding.shared.candidates import sampler_order_conflict
from decodescope.engine.decoding.shared.cells import Cells, cells_form
from decodescope.engine.decoding.shared.ordered_emission import OPEN
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.declarations import CanvasWord, Sentence
from decodescope.engine.trace.details.picture_passes import zipar_passes


@dataclass
class _PictureRows:
    """passes: the cells of each remaining pass;  waiting: cells with a stand-in's entry"""

    cells: Cells
    passes: list[list[int]]
    waiting: list[int] = field(default_factory=list)


ROWS = cells_form(
    "row",
    CanvasWord(
        "▸", "next of its row", [Sentence("Each row that is alive is written one cell on in a pass.")]
    ),
    [
        Sentence(", 1 live row ({listed})", given={"rows": 1}),
        Sentence(", {rows} live rows ({listed})", where="rows != 1"),
    ],
    standins="▹ another token was fed for this cell, which is to come.",
)


@component
class Zipar(Strategy):
    """Write several rows of a picture in parallel.

    The first row is written cell by cell. Each later row begins once the one above has `window` cells, and a pass writes one
    cell of every active row. This takes 2 W + (H - 2) window passes for H rows of W cells; plain decoding takes H W. A row of
    the pass has the position of its cell in the picture, and sees all earlier entries and rows of the pass; open cells have
    none. The first cell of a row is predicted from the cell before it, the last of the row above, which does not exist yet. The
    latest token of that row is fed instead, as a stand-in. Once the real token is known, the stand-in's entry is dropped and
    the real token is fed together with the next cells. A window as wide as the picture is plain decoding. With the same seed it
    draws the same cells, because the random numbers of a cell depend only on its place.

    Lossy: a cell of a later row does not see the right part of the rows above. As in the authors' code, the second row waits
    for the whole first one. A difference: there, open places hold zeros that attention reads; here no row sees them.
    """

    title = "ZipAR"
    source = (
        "He et al. 2024, arXiv:2412.04062, section 3.2; ThisisBillhe/ZipAR, "
        "LlamaGen-ZipAR/autoregressive/models/generate_zipar.py"
    )
    uses = frozenset({"sampler"})
    writes = "rows"
    details: ClassVar = {"row_cells": ROWS}
    lossless = False
    changes = "rows are written side by side"

    window: int = param(
        3, low=1, high=MOST_CELLS, unit="cells", help="number of cells in a row before the next row starts"
    )

    def describe(self) -> dict[str, object]:
        return {**super().describe(), "settles": "rows"}

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return sampler_order_conflict(self.name, method.sampler)

    def begin(self, s: State) -> None:
        cells = Cells.create(s)
        width = cells.picture.width
        if (
            len(s.target.tokens) != len(s.tokens) - 1 or not s.target.cache.layers[0].in_order
        ):  # a fork continues writing
            s.target.truncate(0)
            if s.tokens[:-1]:
                s.target.read(s.tokens[:-1], "catch_up")
        passes = zipar_passes(cells.first, cells.end_cell, width, min(self.window, width))
        s.scratch = _PictureRows(cells, passes)

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        if s.scratch.cells.is_full:  # a fork may continue writing
            self.begin(s)
        rows: _PictureRows = s.scratch
        cells, due = rows.cells, rows.passes.pop(0)
        ready = [cell for cell in rows.waiting if cells.level(s, cell) != OPEN]
        for cell in ready:
            _drop_entry(s.target, cells.begin + cell)
            rows.waiting.remove(cell)
        fed = {cell: cells.level(s, cell) for cell in [*ready, *(cell - 1 for cell in due)]}
        early = sorted(cell for cell, token in fed.items() if token == OPEN)
        for cell in early:
            fed[cell] = next(token for x in range(cell, -1, -1) if (token := cells.level(s, x)) != OPEN)
        rows.waiting += early
        order = sorted(fed)
        logits = self._read_cells(s, [fed[cell] for cell in order], [cells.begin + cell for cell in order])
        asked = [order.index(cell - 1) for cell in due]
        verified = clock.mark()
        s.target.commit(list(range(len(order))))
        settled = cells.settle(s, due, logits[asked], "row")
        settled.standins = [[cells.begin + cell, fed[cell]] for cell in early] or None
        emitted, end = cells.emit(s)
        return plain_move(s, emitted, end, started, verified, details=[settled])

    def _read_cells(self, s: State, tokens: list[int], places: list[int]) -> Tensor:
        """Logits float [T, V] of `tokens` at their `places`, ascending; each sees everything before it.

        A single row behind all cached tokens is the pass of plain decoding.
        """
        device = s.target.decoder.device
        if len(places) == 1 and s.target.cache.layers[0].in_order:
            return s.target.forward(Feed.causal_chain(tokens, places[0], device))[0]
        if s.target.cache.layers[0].in_order:
            s.target.cache.track_positions()
        at = torch.tensor([places], device=device)
        visible = at[0] <= at[0][:, None]
        feed = Feed(
            torch.tensor([tokens], device=device), at, visible[None], seen="before", highest=places[-1]
        )
        return s.target.forward(feed)[0]


def _drop_entry(lane: Lane, place: int) -> None:
    """Drop the entry of the stand-in that was fed at `place` of the text, as if it had never been read.

    The newest entry moves into its slot.
    """
    slot = int((lane.cache.layers[0].positions()[0, 0] == place).nonzero())
    for store in lane.cache.layers:
        log, store.evicted = store.evicted, None  # it is not an entry of the text
        store.evict_same([slot])
        store.evicted = log
    lane.cache.length -= 1
    lane.tokens[slot] = lane.tokens[-1]
    lane.tokens.pop()
