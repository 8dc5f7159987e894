"""Derive pictures again: the cells that a pass had to settle, the rows that it fed, and the stand-ins for cells to come."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..details.picture_passes import picture_start, randar_group_sizes, zipar_passes
from ..details.shapes import CanvasDetail
from ..encoding.forks import method_at
from ..records.events import Header, Step
from ..records.parts import part_description
from ..records.phases import is_deciding_pass


def contiguous_tokens(tokens: Mapping[int, int], place: int) -> list[int]:
    """The contiguous tokens from the position `place` on."""
    piece: list[int] = []
    while (token := tokens.get(place + len(piece))) is not None:
        piece.append(token)
    return piece


class PictureValidator:
    """Follows the picture of a run, pass by pass. `derived`: True if the header says what each pass has to settle."""

    def __init__(self, header: Header):
        self._header = header
        self._whole = header.parent is None  # a branch begins in the midst of a picture
        self._picture: _PictureState | None = None
        self.derived = False

    def lose(self) -> None:
        """Another strategy goes on from here."""
        self._picture = None

    def problems(self, step: Step, fill: CanvasDetail) -> Iterator[str]:
        """Problems of a fill, a phrase each."""
        if self._picture is None or len(self._picture.tokens) == self._picture.length:
            self._picture = self._begin_picture(step, fill)
            if self._whole and fill.start != step.n:
                yield f"its picture begins at {fill.start}, behind a text of {step.n} tokens"
        picture = self._picture
        self.derived = picture.sizes is not None
        if (fill.start, fill.length) != (picture.start, picture.length):
            was = f"{picture.length} from {picture.start} on"
            yield f"its picture has {fill.length} cells from {fill.start} on, and had {was}"
            return
        if (
            fill.places != fill.open.tolist()
            or fill.tokens != fill.candidate.tolist()
            or "bars" in fill.columns
            or fill.stale
        ):
            yield "it does not settle each cell that it draws"
        again = set(fill.places) & set(picture.tokens)
        if again:
            yield f"it settles the positions {sorted(again)} a second time"
        if self.derived:
            yield from picture.check_cells(fill)
            yield from picture.check_fed_rows(step, fill)
        picture.tokens |= dict(zip(fill.places, fill.tokens, strict=True))
        picture.passes += 1
        if self._whole:
            due = contiguous_tokens(picture.tokens, picture.start + picture.emitted)
            if step.emitted != due[: len(step.emitted)]:
                yield f"it emitted {step.emitted}, and what follows the text is {due}"
            picture.emitted += len(step.emitted)

    def _begin_picture(self, step: Step, fill: CanvasDetail) -> _PictureState:
        """The picture that begins with a fill, as the header describes it."""
        settles = part_description(self._header, "strategy").get("settles")
        knobs = method_at(self._header, step.step).get("strategy")
        number = knobs.get("window" if settles == "rows" else "steps") if isinstance(knobs, dict) else None
        width, first = self._shape(fill)
        small = 0 < fill.length <= 1 << 16
        if not (
            self._whole
            and settles in ("rows", "cells")
            and type(number) is int
            and number > 0
            and first >= 0
            and small
        ):
            return _PictureState(fill, 0, 0, None)
        if settles == "cells":
            assert isinstance(knobs, dict)
            return _PictureState(
                fill,
                first,
                width,
                randar_group_sizes(fill.length, number),
                raster=knobs.get("order") == "raster",
            )
        passes = zipar_passes(first, first + fill.length, width, min(number, width))
        return _PictureState(fill, first, width, [len(cells) for cells in passes], passes)

    def _shape(self, fill: CanvasDetail) -> tuple[int, int]:
        """The width of the header's picture, and which of its cells is the first of a fill; -1: not in the header."""
        shape = self._header.model.get("picture")
        width, levels = (shape.get("width"), shape.get("levels")) if isinstance(shape, dict) else (None, None)
        if not (
            type(width) is int
            and width > 0
            and isinstance(levels, list)
            and all(type(x) is int for x in levels)
        ):
            return 1, -1
        return width, fill.start - picture_start(self._header.prompt.tolist(), levels)


class _PictureState:
    """A picture as its fills have left it so far.

    first: the cell at its first place;  sizes: cells of each pass, None: not known;  rows: these cells, if rows are written
    raster: True if groups come in raster order;  tokens: position -> token;  waiting: cells that have another token for now
    """

    def __init__(
        self,
        fill: CanvasDetail,
        first: int,
        width: int,
        sizes: list[int] | None,
        rows: list[list[int]] | None = None,
        raster: bool = False,
    ):
        self.start = fill.start
        self.length = fill.length
        self.first = first
        self.width = width
        self.sizes = sizes
        self.rows = rows
        self.raster = raster
        self.tokens: dict[int, int] = {}
        self.waiting: set[int] = set()
        self.passes = self.emitted = 0

    def check_cells(self, fill: CanvasDetail) -> Iterator[str]:
        """The cells of a pass follow from the knobs; those of a group that comes by chance, how many they are."""
        assert self.sizes is not None
        if self.passes >= len(self.sizes):
            yield f"it is pass {self.passes} over a picture that is whole behind {len(self.sizes)}"
            return
        begin, size = self.start - self.first, self.sizes[self.passes]
        cells = [place - begin for place in fill.open.tolist()]
        done = self.first + len(self.tokens)
        due: Collection[int] | None = list(range(done, done + size)) if self.raster else None
        due = self.rows[self.passes] if self.rows is not None else due
        if due is not None and cells != due:
            yield f"it draws the cells {cells}, and {due} are due"
        if len(cells) != size:
            yield f"it draws {len(cells)} cells, and {size} are due"
        order = fill.columns.get("order")
        ranks = None if order is None else order.tolist()
        if (ranks is None) != (self.rows is not None) or (
            ranks is not None and sorted(ranks) != list(range(len(cells)))
        ):
            yield "its order is no order of its cells"
        elif self.raster and ranks != list(range(len(cells))):
            yield "its order is not that of the raster"

    def check_fed_rows(self, step: Step, fill: CanvasDetail) -> Iterator[str]:
        """Check the rows that a pass fed, and the stand-in tokens for cells to come."""
        assert self.sizes is not None
        begin, size = self.start - self.first, len(fill.open)
        ready = {cell for cell in self.waiting if begin + cell in self.tokens}
        if self.rows is not None:
            due = size + len(ready)
        else:
            due = size + (
                2 * self.sizes[self.passes - 1] - 1
                if 0 < self.passes <= len(self.sizes)
                else 2 * self.first + 1
            )
        rows = [one.tokens for one in step.passes if is_deciding_pass(one)]
        if rows != [due]:
            yield f"its passes fed {rows} rows, and {due} are due"
        self.waiting -= ready
        early = [
            place - 1
            for place in fill.open.tolist()
            if self.rows is not None and self._starts_row_early(place)
        ]
        own = [[place, self.tokens[max(x for x in self.tokens if x < place)]] for place in early]
        self.waiting |= {place - begin for place in early}
        if (fill.standins or []) != own:
            yield f"its rows begin behind the stand-ins {fill.standins}, and {own} are due"

    def _starts_row_early(self, place: int) -> bool:
        """True if the cell at `place` begins a row, and the cell before it is to come."""
        begins = (place - self.start + self.first) % self.width == 0
        return (
            begins
            and place > self.start
            and place - 1 not in self.tokens
            and any(x < place for x in self.tokens)
        )
