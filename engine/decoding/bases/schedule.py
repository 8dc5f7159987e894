"""Schedule: decides how long a draft gets that is written one token after another."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.activity import Activity, count_noun
from decodescope.engine.core.component import Component
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec

from .context import Context, DraftLength, DraftOutcome


class Schedule(Component, DraftLength):
    """Base of every schedule. A drafter that can be scheduled calls `draft_limit` once a step, then `continue_drafting` after
    each token that it drafted; that token is verified whatever the answer. A drafter with a draft model also asks
    `is_worth_verifying` before each token. In this base class, a draft has the drafter's own length.

    adapts:   True if a draft's length may differ from the drafter's own
    gates:    True if it may shorten the draft of a drafter that does not ask, or leave it out (`draft_room`)
    looks_at: what it does with the draft model, if it works with one (`lanes`), e.g. "judges by the state of"
    """

    kind = "schedule"
    adapts: ClassVar[bool] = True
    gates: ClassVar[bool] = False
    looks_at: ClassVar[str] = ""

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if method.drafter.uses_schedule and not {*self.lanes} <= {*method.drafter.lanes}:
            return (
                f"{self.name} {self.looks_at} a draft model and {method.drafter.name} drafts without one; choose the drafter "
                "draft_model, or the schedule confidence."
            )
        return None

    @property
    def refused_draft(self) -> bool:
        """True if it left out the whole draft of this step after the drafter had begun it."""
        return False

    def begin(self, ctx: Context) -> None:
        """Called once, when the prompt has been read up to the root, before the drafter begins."""

    def draft_room(self, ctx: Context) -> int:
        """The most levels that the draft of this step may have, at most `ctx.room`; 0: none. The drafter is left that room, as
        before a text's last tokens, and it observes the step like any other. Asked once a step, before the drafter, if
        `gates`."""
        return ctx.room

    def idle_reason(self, did: Activity) -> str:
        if not (self.adapts or self.gates) or did.held_back or not did.steps:
            return ""
        if not did.drafted_count:
            return f"{self.name} changed no draft: in {count_noun(did.steps, 'step')} nothing was drafted."
        if self.adapts and (did.length is None or any(n != min(room, did.length) for room, n in did.drafts)):
            return ""
        own = f"each had the drafter's own length, {did.length}, or the room that was left"
        why = own if self.adapts else "it held none back"
        return f"{self.name} changed no draft in {count_noun(did.draftable_steps, 'step')}: {why}."

    def observe(self, outcome: DraftOutcome) -> None:
        """Called after the commit: adapt."""
