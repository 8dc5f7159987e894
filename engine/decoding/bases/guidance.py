"""Guidance: replace the target's distribution with another one, computed from its logits before sampling."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from decodescope.engine.core.activity import Activity, count_noun
from decodescope.engine.core.component import Component
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.trace.records.choices import Choice

from ..values.draft import Draft
from .context import Context, DraftOutcome


class Guidance(Component):
    """Base of every guidance p'. Drafts, tests and draws see p' alone, in every row of a pass. Any drafter may therefore
    draft for it, any rule may judge by it, and lossless means that the text is distributed by p'.

    own:  True if it is the target's own distribution, so that nothing calls it
    cuts: True if it may remove tokens
    """

    kind = "guidance"
    own: ClassVar[bool] = False
    cuts: ClassVar[bool] = False

    def describe(self) -> dict[str, Any]:
        return {} if self.own else {"departs": "guidance replaces the model's distribution"}

    def begin(self, ctx: Context) -> None:
        """Called once, when the prompt has been read up to the root."""

    def text(self, role: str, tokens: list[int], prompt: int) -> list[int]:
        """What the model of one of its `lanes` reads instead of `tokens`, which are `prompt` prompt tokens and the text
        after."""
        return tokens

    def rows(self, logits: Tensor, hidden: dict[int | str, Tensor], draft: Draft, ctx: Context) -> Tensor:
        """logits float [N + 1, V] of the target, of the root and each node of `draft` -> those of p', before the sampler; -inf
        removes a token, but not all of a row. hidden: the states of the same pass that `needs` asks for. What is given stays
        as it is."""
        raise NotImplementedError

    def observe(self, outcome: DraftOutcome) -> None:
        """Called after the commit."""

    def pass_needs(self, spec: ModelSpec) -> Needs:
        """What it needs from the passes of a target of this shape, in addition to `needs`."""
        return Needs()

    def idle_reason(self, did: Activity) -> str:
        changed = self.own or did.has_acted(self) or not did.steps
        return (
            ""
            if changed
            else f"{self.name} changed no distribution in {count_noun(did.steps, 'step')} with {self.knobs_as_text}."
        )

    def notes(self) -> dict[str, Any]:
        """What it records of the step just taken, for the trace; empty: nothing."""
        return {}

    def choices(self, rows: list[int], tokens: list[int]) -> list[Choice]:
        """How the tokens just emitted were chosen, each by one of the rows that were last asked for, for the trace."""
        return []
