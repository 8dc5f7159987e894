"""Tally: what a step of a strategy tried by itself, each number beside the threshold that decided, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from decodescope.engine.trace import Header, Step

from .chosen import chosen, itself
from .details import details
from .tallies import Tally

Text = Callable[[Sequence[int]], str]


def tally(header: Header, step: Step, text: Text) -> Tally | None:
    """The tally of a step, None where its strategy keeps no such record. text: of ids"""
    if (declared := details(header, step, text)) is not None:
        return declared
    return chosen(step, text) if itself(step) else None
