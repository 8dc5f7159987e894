"""RandAR: writes the cells of a picture in random order, each requested by position, and more per pass as it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar

import numpy as np
import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.roles import TARGET
from decodescope.engine.core.spec import MOST_CELLS, ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.decoding.shared.candidates import sampler_order_conflict
from decodescope.engine.decoding.shared.cells import Cells, cells_form
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.declarations import CanvasWord, Sentence
from decodescope.engine.trace.details.picture_passes import picture_start, randar_group_sizes


@dataclass
class _Groups:
    """The state of a run.

    groups: the remaining groups of cells, each to be drawn in one pass;  last: the cells with levels still to be read, in
    order;  asked: whether the instruction of the first of them has been read
    """

    cells: Cells
    groups: list[list[int]]
    last: list[int] = field(default_factory=list)
    asked: bool = False


GROUPS = cells_form(
    "group",
    CanvasWord(
        "•",
        "of this group",
        [Sentence("All cells of a group are drawn in one pass, and none of them sees another.")],
    ),
    [Sentence(", a group")],
)


@component
class Randar(Strategy):
    """Draw the cells of a picture in random order, several per pass.

    The model was trained on cells in any order. An instruction, a separate token for each cell, names the next cell, and the
    output there is the distribution of that cell's level. So one pass can request several cells. It feeds the levels of the
    last group, each behind its instruction, and then the instructions of the next group. All cells of this group are drawn at
    once. After pass i of `steps` there are floor((1 - cos(pi / 2 (i + 1) / steps)) N + 1) of N cells. With as many steps as
    cells, each cell sees all earlier ones, and the picture has exactly the model's distribution in that order. With fewer
    steps, the cells of a group are drawn independently of each other. The text is the levels in raster order.

    The instructions of a group all have the position behind the last level and do not see each other. So each row is the same
    as if its cell came next, and their order within the group changes no distribution. In the authors' code the instructions
    follow one another, each seeing those before it, for a model with the rotation of the cell. As there, all but the first
    instruction are fed again in front of their levels. The authors' first group is one cell, whatever the schedule gives.
    """

    title = "RandAR"
    source = "Pang et al. 2024, arXiv:2412.01827, section 3.3; ziqipang/RandAR, RandAR/model/randar_gpt.py and utils.py"
    uses = frozenset({"sampler"})
    writes = "cells"
    details: ClassVar = {"group_cells": GROUPS}
    lossless = False
    changes = "cells of a group are drawn without seeing each other"

    steps: int = param(
        24,
        low=1,
        high=MOST_CELLS**2,
        unit="passes",
        help="number of passes for a picture; as many as it has cells: one cell per pass",
    )
    order: str = param(
        "random", choices=("random", "raster"), help="order in which cells are written: random, or row by row"
    )

    def describe(self) -> dict[str, object]:
        return {**super().describe(), "settles": "cells"}

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return sampler_order_conflict(self.name, method.sampler)

    def prefill(self, s: State) -> None:
        """Read the text before the picture, except its last token; levels of the prompt are read with their instructions."""
        picture = s.target.decoder.spec.picture
        assert picture is not None, "a model that writes no pictures was refused"
        before = s.tokens[: max(picture_start(s.tokens[: s.prompt], picture.levels) - 1, 0)]
        if len(before) > len(s.target.tokens):
            s.target.read(before, "prefill", s.chunk_callback(TARGET), compress=False)

    def begin(self, s: State) -> None:
        cells = Cells.create(s)
        if cells.begin == 0:
            raise EngineFault(
                "bad_input", "The prompt holds grey levels alone: put a token before the picture."
            )
        most, due = s.target.decoder.spec.max_positions, cells.begin + 2 * cells.end_cell
        if due > most:
            raise EngineFault(
                "bad_input",
                f"With {cells.begin} tokens before it a picture takes {due} positions, an instruction and a level for each "
                f"cell, and the model {s.target.decoder.spec.reading_limit}: shorten the prompt.",
            )
        s.target.truncate(cells.begin - 1)
        places = list(range(cells.first, cells.end_cell))
        if self.order == "random":
            places = [places[i] for i in s.chance.shuffle(len(places), cells.text.start)]
        sizes = randar_group_sizes(len(places), self.steps)
        ends = list(accumulate(sizes))
        groups = [places[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        s.scratch = _Groups(cells, groups, list(range(cells.first)))

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        if s.scratch.cells.is_full:  # a fork may continue writing
            self.begin(s)
        run: _Groups = s.scratch
        group = run.groups.pop(0)
        read = self._tokens_to_read(s, run)
        logits = s.target.forward(
            _instruction_feed(s, read, [run.cells.picture.cells[cell] for cell in group])
        )[0, -len(group) :]
        verified = clock.mark()
        s.target.commit(list(range(len(read) + 1)))
        run.last, run.asked = group, True
        settled = run.cells.settle(s, group, logits, "group")
        settled.columns["order"] = np.array(group).argsort(kind="stable").astype(np.int32)
        emitted, end = run.cells.emit(s)
        return plain_move(s, emitted, end, started, verified, details=[settled])

    def _tokens_to_read(self, s: State, run: _Groups) -> list[int]:
        """The tokens that a pass reads before its new instructions: the last group's levels behind their instructions.

        The first of these instructions has been read already. At the beginning, it is the text before the picture, and the
        cells that the prompt gives.
        """
        pairs = [x for cell in run.last for x in (run.cells.picture.cells[cell], run.cells.level(s, cell))]
        return pairs[1:] if run.asked else [s.tokens[run.cells.begin - 1], *pairs]


def _instruction_feed(s: State, read: list[int], asked: list[int]) -> Feed:
    """A chain behind the cached tokens, and instructions that all have the position behind it and do not see each other."""
    start = len(s.target.tokens)
    device = s.target.decoder.device
    chain = len(read)
    if len(asked) == 1:
        return Feed.causal_chain(read + asked, start, device)
    at = torch.arange(chain + len(asked), device=device)
    visible = (at[:, None] >= at) & ((at < chain) | (at == at[:, None]))
    return Feed(
        torch.tensor([read + asked], device=device),
        (start + at.clamp(max=chain))[None],
        visible[None],
        highest=start + chain,
    )
