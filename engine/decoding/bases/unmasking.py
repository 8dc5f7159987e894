"""Selector: which open places of a canvas are committed in a pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from decodescope.engine.core.component import Component
from decodescope.engine.trace.details.canvas_fill import committed_mask
from decodescope.engine.trace.details.declarations import CanvasWord
from decodescope.engine.trace.details.exploration import Explored

from ..values.chance import Chance

if TYPE_CHECKING:
    from decodescope.engine.model.forward.decoder import Decoder


@dataclass(frozen=True)
class CanvasView:
    """What a selector chooses from.

    block:   (first position, the one after the last) of the block that is being filled, or of several from that on
    passes:  made in this block before this one
    places:  int32 [O], its open positions, ascending, at least one
    candidate: int32 [O], the token that each would get;  confidence: float32 [O], the model's probability of it
    written: position -> confidence of the block's other places, if their tokens may be masked again
    edge:    position after the block that must be full first
    entropy: float32 [O], of the distribution at each open place, in bits, if the selector explores
    explored: what the pass tried, if it read several canvases; the other fields then belong to the best canvas
    ends:    tokens that end a text
    """

    block: tuple[int, int]
    passes: int
    places: np.ndarray
    candidate: np.ndarray
    confidence: np.ndarray
    written: Mapping[int, float] = field(default_factory=dict)
    edge: int = 0
    entropy: np.ndarray | None = None
    explored: Explored | None = None
    ends: Collection[int] = ()


@dataclass
class SelectorChoice:
    """A selector's choice: the `count` open places that rank first, and those with a confidence that reaches their bar.

    Fields are as in a `CanvasDetail` (engine/trace/details/shapes.py). rules: the word for each open place, if it were
    committed; reopened: the places of the block that are masked again; none: the block is done. A selector that reopens
    places commits all open places first."""

    count: int
    rules: list[str]
    bars: np.ndarray | None = None
    order: np.ndarray | None = None
    anchors: list[int] | None = None
    reopened: list[int] | None = None
    final: np.ndarray | None = None
    cut: int | None = None

    def committed_indices(self, view: CanvasView) -> list[int]:
        """The indices of the open places that are committed, ascending."""
        return np.flatnonzero(committed_mask(self.count, view.confidence, self.bars, self.order)).tolist()


class Unmasking(Component):
    """Base of every selector. Its knobs and what the pass showed decide, so that a trace's check derives the choice again.

    commits: how its choice follows from the knobs, for that check: "schedule", "bar", "leap", "revise", "tries" or "filter"
             (engine/trace/detail_checks/fills.py)
    words:    word of a rule, as its choices name it -> how views say why a place was settled
    explores: whether it asks for passes over several canvases;  reopens: whether it masks places again
    """

    kind = "unmasking"
    commits: ClassVar[str] = ""
    words: ClassVar[Mapping[str, CanvasWord]] = {}
    explores: ClassVar[bool] = False
    reopens: ClassVar[bool] = False

    def describe(self) -> dict[str, Any]:
        return {"commits": self.commits}

    @property
    def drops(self) -> bool:
        """True if it, as set, may leave out places of a canvas."""
        return False

    @property
    def blocks(self) -> int:
        """How many blocks it fills side by side: the first that is not full, and those after it."""
        return 1

    def begin(self, decoder: Decoder) -> None:
        """Called with the target before the first choice."""

    def select(self, view: CanvasView, chance: Chance) -> SelectorChoice:
        """The places that are committed: at least one in every pass."""
        raise NotImplementedError

    def explore(self, view: CanvasView, choice: SelectorChoice) -> tuple[int, int] | None:
        """Called after `choice`: an open place before the edge, and how many tokens the next pass tries there, with one canvas
        for each; None: it reads the canvas as it is."""
        return None

    def judge(
        self,
        open: np.ndarray,
        edge: int,
        chance: np.ndarray,
        candidate: np.ndarray,
        confidence: np.ndarray,
        ends: Collection[int],
    ) -> tuple[list[int], np.ndarray]:
        """Of each canvas that was tried, how many places are sure, and its score. Arguments and result as in `Explored`; ends:
        tokens that end a text."""
        raise NotImplementedError
