"""Tally: what a step of a strategy tried by itself, each number with the threshold that decided, and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from decodescope.engine.trace import Header, Step

from .choice_tally import choice_tally, is_chosen_by_strategy
from .details import details_tally
from .step_tally import StepTally

Text = Callable[[Sequence[int]], str]


def find_tally(header: Header, step: Step, text: Text) -> StepTally | None:
    """The tally of a step, None if its strategy keeps no such record. text: ids -> text"""
    if (declared := details_tally(header, step, text)) is not None:
        return declared
    return choice_tally(step, text) if is_chosen_by_strategy(step) else None
