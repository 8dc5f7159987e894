"""Depth: which layers a pass of the target runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar, Protocol

from torch import Tensor

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.component import Component
from decodescope.engine.core.probe import Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import NOTHING, Block, Skip
from decodescope.engine.trace.records.events import Exit


class DepthLane(Protocol):
    """The lane for whose passes a rule decides, as the rule sees it."""

    decoder: Decoder
    tokens: list[int]

    def forward(self, feed: Feed, phase: str = ...) -> Tensor:
        """Run `feed`; its rows are pending. Logits [B, T, V]."""
        ...

    def states_before(
        self, feed: Feed, until: int, phase: str = ..., alone: bool = ..., by: Decoder | None = ...
    ) -> Tensor:
        """The states [B, T, d_model] that enter layer `until`; alone: of a whole text, without the cache."""
        ...

    def rollback(self) -> None:
        """Drop what is pending."""
        ...

    @property
    def deferred_tokens(self) -> int:
        """Tokens that wait before a layer."""
        ...


class AdaptiveDepth(Component):
    """Base of every depth rule, which has four hooks: `plan` before a pass, `gate`, `leave` and `rows` inside it.

    exact: all layers run for every token
    skipped_kv: what the cache holds for layers that a pass skips when it leaves early, and for a row whose attention was
           skipped; each plan has its own value
    routes: the rule is asked for the `rows` of each sub-layer; what its `needs` ask about attention comes from the layers
           below, for example `Probe.received`
    reads: prompts are read under the rule as well, and so is the text so far when it is read again
    """

    kind = "adaptive_depth"
    exact: ClassVar[bool] = False
    routes: ClassVar[bool] = False
    reads: ClassVar[bool] = False
    shown = False  # True if decisions of passes are recorded
    skipped_kv: str = "propagate"

    def describe(self) -> dict[str, Any]:
        return {"exact": self.exact}

    @property
    def defer_layer(self) -> int | None:
        """The layer before which tokens wait until they go on together; None: none wait."""
        return None

    @property
    def whole(self) -> bool:
        """True if the layers above an exit still run, only to write their entries."""
        return False

    def attach_lane(self, lane: DepthLane) -> None:
        """Give the rule the lane that it controls, once before `begin`: its model's heads, and passes of the rule's own."""

    def begin(self, spec: ModelSpec) -> None:
        """Called once before the run."""

    def plan(self, position: int, feed: Feed) -> Skip:
        """What the decoding pass over `feed` leaves out; called before the pass.

        position: of the first token that the pass decides, counted from the end of the prompt; below 0 while a rule that
        `reads` reads the prompt."""
        return NOTHING

    def rows(self, layer: int, block: Block, x: Tensor, probe: Probe | None) -> Tensor | None:
        """The rows that run the attention or feed-forward block of `layer`, asked before the block; x float
        [B, T, d_model] enters it: bool [T], or row numbers, int64 [R], ascending; None: all. The other rows take part in no
        product of it: their state passes it unchanged. `skipped_kv` ("propagate" or "absent") defines what `layer` holds of a
        row whose attention is skipped."""
        return None

    def gate(self, layer: int, before: Tensor, after: Tensor) -> Collection[int]:
        """The feed-forward blocks above `layer` that the pass leaves out; called after the block of `layer`, which turned
        `before` into `after`, float [B, T, d_model] each."""
        return ()

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        """True to stop before `layer`; x float [B, T, d_model] enters it, read() gives the logits [B, T, V] from x."""
        return False

    def idle_reason(self, did: Activity) -> str:
        if self.exact or self.whole or did.short or not did.steps:
            return ""
        return (
            f"{self.name} ran all {did.layers} layers in each of {did.passes} passes: its rule left none out."
        )

    def take_exit(self) -> Exit | None:
        """The decision of the last pass, for the trace."""
        return None


class FlushDepth(AdaptiveDepth):
    """No rule: waiting tokens go on to the last layer."""

    skipped_kv = "defer"
