"""Explore-Then-Exploit: if passes commit little, try tokens at the most uncertain place and keep the most helpful one."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.unmasking import CanvasView, SelectorChoice, Unmasking
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.trace.details.canvas_fill import committed_mask
from decodescope.engine.trace.details.declarations import CanvasWord, Sentence
from decodescope.engine.trace.details.exploration import (
    canvas_scores,
    count_sure_places,
    place_bars,
    place_to_explore,
)

from .shared.words import BEST, SURE


@component
class Explore(Unmasking):
    """As `threshold`, with the paper's two ideas.

    A token with a probability of at least tau settles at most log2(1 / tau) bits. So a text with much information needs many
    passes if they commit nothing else.

    Across blocks: the first `parallel_blocks` unfilled blocks are filled in parallel; behind the first, the threshold is tau +
    `later_block_margin`. Targeted exploration follows a pass that committed fewer than `min_sure_places` confident places. The
    next pass commits the most uncertain place of the first block (highest entropy) in any case, instead of the most confident
    one, so that others may follow.

    The paper's abstract and theory are public, but its code is not, so the following form is ours. The next pass reads
    `candidates` canvases in parallel, each with another of the place's likeliest tokens. The canvas with the highest score is
    kept. The score is the log of the token's probability plus `gain` for every place that then reaches its threshold with a
    token that does not end the text. Its pass also decides on the other places, so exploring takes no separate pass, but
    `candidates` times the rows. Those tokens come from the pass before, which knows nothing of what it committed itself. One
    try, one block and `min_sure_places` = 0 are `threshold`.
    """

    title = "Explore, then exploit"
    source = "Fu, Huang et al. 2025, arXiv:2511.21103 (abstract and theory; rules and numbers are ours)"
    commits = "tries"
    words: ClassVar = {
        "best": BEST,
        "sure": SURE,
        "explored": CanvasWord(
            "?",
            "explored",
            [Sentence("It was the most uncertain place, and tokens were tried here.")],
        ),
    }
    explores = True

    tau: float = param(
        0.9,
        low=0.0,
        high=1.01,
        step=0.01,
        help="confidence needed to commit a place in the first block (tau)",
    )
    later_block_margin: float = param(
        0.05,
        low=0.0,
        high=1.0,
        step=0.01,
        help="how much more confidence is needed in the blocks after the first",
    )
    parallel_blocks: int = param(
        2, low=1, high=64, unit="blocks", help="number of blocks that are filled at the same time (w)"
    )
    candidates: int = param(
        2,
        low=1,
        high=8,
        unit="canvases",
        help="number of tokens tried at the explored place, each in its own canvas (K)",
    )
    min_sure_places: int = param(
        2,
        low=0,
        high=256,
        unit="places",
        help="confident places a pass must commit, or the next one explores (r); 0: never explore",
    )
    gain: float = param(
        0.5,
        low=0.0,
        high=10.0,
        step=0.1,
        help="bonus in nats for each place that a tried token makes confident",
    )

    @property
    def blocks(self) -> int:
        return self.parallel_blocks

    def select(self, view: CanvasView, chance: Chance) -> SelectorChoice:
        bars = place_bars(view.places, view.edge, self.tau, self.later_block_margin)
        rules = np.where(view.confidence >= bars, "sure", "best")
        if view.explored is not None:
            at = view.places == view.explored.place
            bars, rules = np.where(at, np.float32(0), bars), np.where(at, "explored", rules)
        return SelectorChoice(int(view.explored is None), rules.tolist(), bars)

    def explore(self, view: CanvasView, choice: SelectorChoice) -> tuple[int, int] | None:
        assert view.entropy is not None and choice.bars is not None
        taken = committed_mask(choice.count, view.confidence, choice.bars, None)
        sure = np.array(choice.rules) == "sure"
        place = place_to_explore(view.places, view.entropy, taken, sure, view.edge, self.min_sure_places)
        return None if place is None else (place, self.candidates)

    def judge(
        self,
        open: np.ndarray,
        edge: int,
        chance: np.ndarray,
        candidate: np.ndarray,
        confidence: np.ndarray,
        ends: Collection[int],
    ) -> tuple[list[int], np.ndarray]:
        sure = count_sure_places(
            candidate, confidence, place_bars(open, edge, self.tau, self.later_block_margin), ends
        )
        return sure, canvas_scores(chance, sure, self.gain)
