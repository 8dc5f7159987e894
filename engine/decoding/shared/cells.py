"""Cells: the places of a picture after a text, settled in any order and emitted row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.spec import PictureSpec
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.trace.details.declarations import CanvasForm, CanvasWord, DetailColumn, Sentence
from decodescope.engine.trace.details.picture_passes import picture_start
from decodescope.engine.trace.details.shapes import CanvasDetail
from decodescope.engine.trace.records.events import EndReason

from ..bases.state import State
from .candidates import draw_candidates
from .canvas import CANVAS
from .ordered_emission import OPEN, OrderedEmission


def cells_form(word: str, sign: CanvasWord, cells: list[Sentence], standins: str = "") -> CanvasForm:
    """The form of a pass over cells with the rule `word`; cells, standins: as in `CanvasForm`."""
    return replace(
        CANVAS,
        lines=[Sentence("One pass draws these cells, each from its own row; none of them sees another.")],
        words={word: sign},
        cells=cells,
        standins=standins,
        columns=[DetailColumn("order", "number")],
        unread={},
        check="pictures",
        part="strategy",
    )


@dataclass
class Cells:
    """The cells of a picture that are written, as many as the text has room for. Cells are counted in raster order.

    first: the first that is written: those before it are in the text already;  begin: position of cell 0
    """

    picture: PictureSpec
    text: OrderedEmission
    first: int

    @classmethod
    def create(cls, s: State) -> Cells:
        """Those that the text of `s` lacks. Raises EngineFault if it lacks none."""
        picture = s.target.decoder.spec.picture
        assert picture is not None, "a model that writes no pictures was refused"
        first = len(s.tokens) - picture_start(s.tokens[: s.prompt], picture.levels)
        if first >= picture.size:
            why = f"The prompt ends with {first} grey levels, and a picture has {picture.size}: leave some of them out."
            raise EngineFault("bad_input", why)
        return cls(
            picture,
            OrderedEmission(len(s.tokens), [OPEN] * min(s.remaining_tokens, picture.size - first)),
            first,
        )

    @property
    def begin(self) -> int:
        """Position of the picture's first cell in the text."""
        return self.text.start - self.first

    @property
    def end_cell(self) -> int:
        """The cell after the last that is written."""
        return self.first + len(self.text.tokens)

    @property
    def is_full(self) -> bool:
        """True if all are settled."""
        return OPEN not in self.text.tokens

    def level(self, s: State, cell: int) -> int:
        """The token of a cell, OPEN where none is settled; that of the token before the picture for cell -1."""
        place = self.begin + cell
        return s.tokens[place] if place < self.text.start else self.text.tokens[place - self.text.start]

    def settle(self, s: State, cells: Sequence[int], logits: Tensor, rule: str) -> CanvasDetail:
        """Draw the tokens of `cells` from logits float [O, V], each with the coins of its place, and settle them by `rule`."""
        drawn, probability = draw_candidates(s, [self.begin + cell for cell in cells], logits)
        order = np.argsort(np.array(cells), kind="stable")
        places = (self.begin + np.array(cells, np.int32)[order]).astype(np.int32)
        column = drawn.to(torch.int32).cpu().numpy()[order]
        confidence = probability.float().cpu().numpy()[order]
        for place, token in zip(places.tolist(), column.tolist(), strict=True):
            self.text.settle(place, token)
        span = [self.text.start, self.text.end]
        return CanvasDetail(
            f"{rule}_cells", self.text.start, len(self.text.tokens), span, places, column, places.tolist(), column.tolist(),
            [rule] * len(places), confidence, count=len(places), cache="kept",
        )  # fmt: skip

    def emit(self, s: State) -> tuple[list[int], EndReason | None]:
        """The settled cells right after the text, and why it ends, if it does: a whole picture is the end."""
        emitted, end = self.text.emit(s)
        whole = self.is_full and self.end_cell == self.picture.size
        return emitted, end or ("picture_full" if whole else None)
