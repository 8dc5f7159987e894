"""Selector: which open places of a canvas are committed in a pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from decodescope.engine.core.component import Component
from decodescope.engine.trace.filled import chosen

from .chance import Chance


@dataclass(frozen=True)
class Open:
    """What a selector chooses from.

    block:   (first position, the one behind the last) of the block that is being filled
    passes:  made in this block before this one
    places:  int32 [O], its open positions, ascending, at least one
    candidate: int32 [O], the token that each would get;  confidence: float32 [O], the model's probability of it
    """

    block: tuple[int, int]
    passes: int
    places: np.ndarray
    candidate: np.ndarray
    confidence: np.ndarray


@dataclass
class Choice:
    """What a selector chose: the `count` open places that rank first, and those whose confidence reaches their bar. Fields as
    those of a `Fill` (engine/trace/filled.py); rules: the word for each open place, were it committed."""

    count: int
    rules: list[str]
    bars: np.ndarray | None = None
    order: np.ndarray | None = None
    anchors: list[int] | None = field(default=None)

    def taken(self, view: Open) -> list[int]:
        """The indices of the open places that are committed, ascending."""
        return np.flatnonzero(chosen(self.count, view.confidence, self.bars, self.order)).tolist()


class Selector(Component):
    """Base of every selector. Its knobs and what the pass showed decide, so that a trace's check derives the choice again.

    commits: how `count` and `bars` follow from the knobs, for that check: "schedule", "bar" or "leap" (engine/trace/fills.py)
    """

    kind = "selector"
    commits: ClassVar[str] = ""

    def says(self) -> dict[str, Any]:
        return {"commits": self.commits}

    def select(self, view: Open, chance: Chance) -> Choice:
        """What is committed: at least one place in every pass."""
        raise NotImplementedError
