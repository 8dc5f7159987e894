"""Watched depth: an adaptive-depth rule written as text, and the states of its passes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import cast

from torch import Tensor

from decodescope.engine.core.component import parse_component
from decodescope.engine.core.probe import Probe
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Block, Skip
from decodescope.engine.model.layers.row_routing import choose_rows
from decodescope.engine.trace.records.events import Exit


def parse_depth_rule(text: str, where: str) -> AdaptiveDepth:
    """The rule that `text` names, e.g. "confidence_exit threshold=0.7 min_layers=1"; messages name `where`.

    Raises ParamError if there is no such rule or knob.
    """
    return cast(AdaptiveDepth, parse_component("adaptive_depth", text, where))


class WatchedDepth(AdaptiveDepth):
    """A depth rule, and the states that entered each layer of its last pass.

    sound: layers from the first on that the pass ran as a whole pass would; the states that entered them can be reused
    """

    def __init__(self, rule: AdaptiveDepth, layers: int):
        self.rule = rule
        self._layers = layers
        self.sound = layers
        # a drafted token would wait for the verification pass
        self.skipped_kv = "absent" if rule.skipped_kv == "defer" else rule.skipped_kv

    @property
    def whole(self) -> bool:
        return self.rule.whole

    @property
    def routes(self) -> bool:  # type: ignore[override] # the watched rule's
        """Whether rows choose."""
        return self.rule.routes

    def rows(self, layer: int, block: Block, x: Tensor, probe: Probe | None) -> Tensor | None:
        some = choose_rows(self.rule, layer, block, x, probe)
        self.sound = self.sound if some is None else min(self.sound, layer)
        return some

    def plan(self, position: int, feed: Feed) -> Skip:
        self.entered: dict[int, Tensor] = {}
        self._left: int | None = None
        skip = self.rule.plan(position, feed)
        self.sound = min(skip.attn | skip.ffn, default=self._layers)
        return skip

    def gate(self, layer: int, before: Tensor, after: Tensor) -> Collection[int]:
        closed = self.rule.gate(layer, before, after)
        self.sound = min(self.sound, *closed) if closed else self.sound
        return closed

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        self.entered[layer], self.rule.shown = x, self.shown
        if self.rule.leave(layer, x, read):
            self._left = layer
            self.sound = min(self.sound, layer)
            return True
        return False

    @property
    def exit_layer(self) -> int:
        """The layer in front of which the last pass exited; the number of layers if it did not."""
        return self._layers if self._left is None else self._left

    def take_exit(self) -> Exit | None:
        return self.rule.take_exit()
