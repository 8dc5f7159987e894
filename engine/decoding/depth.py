"""Depth: which layers a pass of the target runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor

from decodescope.engine.core.component import Component
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.trace.events import Exit


class Depth(Component):
    """Base of every depth rule. `exact`: all layers run for every token."""

    kind = "depth"
    exact: ClassVar[bool] = False

    def says(self) -> dict[str, Any]:
        return {"exact": self.exact}

    def begin(self, spec: ModelSpec) -> None:
        """Called once before the run."""

    def start_pass(self, position: int) -> None:
        """Called before each decoding pass; position: of the first token it decides, counted from the end of the prompt."""

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        """Whether to stop before `layer`; x float [B, T, d_model] enters it, read() gives the logits [B, T, V] from x."""
        return False

    def took(self) -> Exit | None:
        """What the last pass decided, for the trace."""
        return None
