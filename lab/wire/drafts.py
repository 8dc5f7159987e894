"""Drafts: what a view is told of a draft beside its nodes."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace.events import Step


def drafted_as(step: Step) -> dict[str, Any]:
    """How the nodes of a step were drawn, and which of them were passengers, by the numbers of a view."""
    if step.draft is None:
        return {}
    aside = {"passengers": [node + 1 for node in step.draft.passengers]} if step.draft.passengers else {}
    return {"proposal": step.draft.proposal, **aside}
