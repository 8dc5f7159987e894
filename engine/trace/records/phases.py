"""Phases: the purpose of a pass, as recorded. Only the phases that readers must distinguish are named here."""

from __future__ import annotations

from .events import Pass

READS = ("prefill", "score")  # passes that read a prompt
STATES = ("score", "lookup")  # passes that end below the head where they name the layers that they ran
DECIDES = ("verify", "canvas")  # passes of the target that decide about tokens


def is_deciding_pass(one: Pass) -> bool:
    """True if it is a pass of the target that decides about tokens."""
    return one.lane == "target" and one.phase in DECIDES
