"""Schedule: decides how long a draft gets that is written one token after another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from ..component import Component
from ..probe import Needs
from ..spec import ModelSpec

if TYPE_CHECKING:
    from ..drafters.base import Context, Outcome
    from ..method import Method


@dataclass
class Drafted:
    """The token just drafted, as a schedule sees it. Nothing in it is newer than the token itself, so what a schedule
    decides depends on the drafted prefix alone, and the text keeps the target's law.

    token:  its id
    logits: float [V] that it was chosen from, before the sampler
    hidden: float [d_model], the draft model's state after the final norm, of which it made these logits: that of the token
            before this one; None where the schedule's draft_needs ask for no state
    """

    token: int
    logits: Tensor
    hidden: Tensor | None = None

    @cached_property
    def sure(self) -> float:
        """The largest probability of the draft's law before the sampler."""
        return float(self.logits.softmax(-1).amax())


class Schedule(Component):
    """Base of every schedule. A drafter that can be scheduled asks `allow` once a step, then `more` after each token that it
    drafted; that token is checked whatever the answer. As it stands, a draft has the drafter's own length.

    draft_needs: what it asks of the draft model's passes
    looks_at: what it does with a draft model, where it cannot do without one, e.g. "judges by the state of"
    """

    kind = "schedule"
    draft_needs: ClassVar[Needs] = Needs()
    looks_at: ClassVar[str] = ""

    def refuse(self, method: Method, spec: ModelSpec) -> str | None:
        if self.looks_at and method.drafter.scheduled and "draft" not in method.drafter.lanes:
            return (
                f"{self.name} {self.looks_at} a draft model and {method.drafter.name} drafts without one; choose the drafter "
                "draft_model, or the schedule confidence."
            )
        return None

    def lacks(self, draft: ModelSpec) -> str | None:
        """Why it cannot judge the tokens of the draft model `draft`; None if it can."""
        return None

    def begin(self, ctx: Context) -> None:
        """Called once, when the prompt has been read up to the root, before the drafter begins."""

    def allow(self, ctx: Context, length: int) -> int:
        """How many tokens may be drafted in this step, at most ctx.room; length: the drafter's own knob."""
        return min(length, ctx.room)

    def more(self, drafted: Drafted) -> bool:
        """Whether to draft another token after this one, were there still room."""
        return True

    def observe(self, outcome: Outcome) -> None:
        """Called after the commit: adapt."""

    def notes(self) -> dict[str, Any]:
        """How the draft just written got its length, for the trace, under the name "schedule"; empty: nothing to say."""
        return {}
