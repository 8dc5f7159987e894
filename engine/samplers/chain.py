"""Chain: samplers applied one after the other, in the order given."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from torch import Tensor

from ..component import component
from .base import Sampler


@component
class Chain(Sampler):
    """Stages in a visible order: top-p before temperature is another law than top-p after it.

    State: one state per stage. A stage sees the logits as the stages before it left them.
    """

    title = "Chain"
    source = "order matters: transformers, generation/logits_process.py"

    stages: list[Sampler] = field(default_factory=list)

    @property
    def stateful(self) -> bool:  # type: ignore[override] # a property where the others have a constant
        """Whether any stage is."""
        return any(stage.stateful for stage in self.stages)

    @property
    def greedy(self) -> bool:
        """Whether any stage leaves one token."""
        return any(stage.greedy for stage in self.stages)

    def start(self, prompt: list[int], vocab: int) -> list[Any]:
        return [stage.start(prompt, vocab) for stage in self.stages]

    def warp(self, logits: Tensor, state: Any) -> Tensor:
        for stage, s in zip(self.stages, state, strict=True):
            logits = stage.warp(logits, s)
        return logits

    def update(self, state: Any, token: int, logits: Tensor) -> list[Any]:
        after = []
        for i, (stage, s) in enumerate(zip(self.stages, state, strict=True)):
            after.append(stage.update(s, token, logits))
            if any(later.reads_logits for later in self.stages[i + 1 :]):
                logits = stage.warp(logits, s)
        return after

    def show(self, state: Any) -> dict[str, Any] | None:
        shown = {}
        for stage, s in zip(self.stages, state, strict=True):
            shown.update(stage.show(s) or {})
        return shown or None
