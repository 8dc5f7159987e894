"""Drafts: the message fields on a draft, other than its nodes."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace.checks.notes import declared_notes
from decodescope.engine.trace.records.events import Header, Step
from decodescope.engine.trace.records.phases import is_deciding_pass


def encode_draft(header: Header, step: Step) -> dict[str, Any]:
    """How the nodes of a step were drawn, the auxiliary nodes (passengers), and the rows of the pass without a token.
    Nodes have the numbers of a view."""
    slots = encode_slots(header, step)
    if step.draft is None:
        return slots
    aside = {"passengers": [node + 1 for node in step.draft.passengers]} if step.draft.passengers else {}
    return {"proposal": step.draft.proposal, **aside, **slots}


def encode_slots(header: Header, step: Step) -> dict[str, Any]:
    """slots: by node of the view, the root first, how many slots are attached to it, in the pass that decided.
    [all of them] if there is no draft, or no record says where they are attached. Nothing if that pass had none."""
    total = next((one.slots for one in step.passes if is_deciding_pass(one) and one.slots), None)
    if total is None:
        return {}
    nodes = 0 if step.draft is None else len(step.draft.tokens)
    for part, values in declared_notes(header, step).items():
        note = header.tells[part].get("slots")
        hung: list[int] = values.get("slots") or []
        told_of = sum(hung)
        if (
            note is not None
            and note.kind == "node"
            and len(hung) == nodes + 1
            and told_of > 0
            and total % told_of == 0
        ):
            return {"slots": [count * (total // told_of) for count in hung]}
    return {"slots": [total]}
