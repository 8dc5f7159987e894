"""Turns: the arithmetic of two models that write one text, which the routers and the check of a trace share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .declarations import LaneWords

Size = Literal["small", "large"]
LANES: dict[Size, str] = {"small": "draft", "large": "target"}
LANE_WORDS = {
    "large": LaneWords("M", "large model", LANES["large"]),
    "small": LaneWords("S", "small model", LANES["small"]),
}  # the lanes in which a tally's rows are drawn
ORIGINS: dict[Size, str] = {"small": "draft", "large": "target"}


def kept_count(tokens: Sequence[int], loss: Sequence[float], choice: Sequence[int], bar: float) -> int:
    """How many tokens of a block stay: those before the first whose loss is above the bar and that is not the likeliest."""
    wrong = (i for i, token in enumerate(tokens) if loss[i] > bar and token != choice[i])
    return next(wrong, len(tokens))


def next_writer(active: Size, mean: float, tau: float, stay: int, least: int) -> Size:
    """Whose turn it is by a mean entropy: nobody's but the writer's before it has made `least` tokens in a row."""
    if stay < least:
        return active
    return "large" if mean > tau else "small"


def turn_outcome(active: Size, mean: float, tau: float, stay: int, least: int) -> str:
    """The outcome of a turn in a tally: who goes on, and whether mean and tau decide that."""
    following = next_writer(active, mean, tau, stay, least)
    if stay < least:
        return f"{following} stays"
    return "even" if mean == tau else following


def writer_from_outcome(outcome: str) -> Size:
    """Who goes on behind a turn with this outcome."""
    return "large" if outcome.startswith("large") else "small"
