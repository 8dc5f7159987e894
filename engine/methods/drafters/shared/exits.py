"""Exits: a rule of the kind depth written as text, and what its passes left behind."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import cast

from torch import Tensor

from decodescope.engine.core.component import written
from decodescope.engine.decoding.depth import Depth
from decodescope.engine.model.feed import Feed
from decodescope.engine.model.partial import Skip
from decodescope.engine.trace.events import Exit


def rule_of(text: str, where: str) -> Depth:
    """The rule that `text` names, e.g. "confidence_exit threshold=0.7 first=1"; `where` stands in messages. Raises
    ParamError if there is no such rule or knob."""
    return cast(Depth, written("depth", text, where))


class Watched(Depth):
    """A depth rule, and the states that entered each layer of its last pass."""

    def __init__(self, rule: Depth):
        self.rule = rule

    def plan(self, position: int, feed: Feed) -> Skip:
        self.entered: dict[int, Tensor] = {}
        self._left: int | None = None
        return self.rule.plan(position, feed)

    def gate(self, layer: int, before: Tensor, after: Tensor) -> Collection[int]:
        return self.rule.gate(layer, before, after)

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        self.entered[layer] = x
        if self.rule.leave(layer, x, read):
            self._left = layer
            return True
        return False

    def left(self, layers: int) -> int:
        """Layers that the last pass ran, of `layers`."""
        return layers if self._left is None else self._left

    def took(self) -> Exit | None:
        return self.rule.took()
