"""Turns: the arithmetic of two models that write one text, which the routers and the check of a trace share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .declarations import LaneForm, LaneWords

Size = Literal["small", "large"]
LANES: dict[Size, str] = {"small": "draft", "large": "target"}
WRITER_LANES = LaneForm(
    column="lane",
    lanes={
        "large": LaneWords("M", "large model", LANES["large"]),
        "small": LaneWords("S", "small model", LANES["small"]),
    },
    title="Two lanes",
    says="who wrote each token",
    number="",
    what="",
    head="",
    bar="",
    caught="caught",
)  # how the rows of a router's tally are drawn; the router says its number and its bar
ORIGINS: dict[Size, str] = {"small": "draft", "large": "target"}


def kept_count(tokens: Sequence[int], loss: Sequence[float], choice: Sequence[int], bar: float) -> int:
    """The number of tokens of a block that stay: those before the first that is above the bar and not the likeliest."""
    wrong = (i for i, token in enumerate(tokens) if loss[i] > bar and token != choice[i])
    return next(wrong, len(tokens))


def next_writer(active: Size, mean: float, tau: float, stay: int, least: int) -> Size:
    """The model that writes next, by a mean entropy; the active one until it has made `least` tokens in a row."""
    if stay < least:
        return active
    return "large" if mean > tau else "small"


def turn_outcome(active: Size, mean: float, tau: float, stay: int, least: int) -> str:
    """The outcome of a turn in a tally: the next writer, and whether mean and tau decide it."""
    following = next_writer(active, mean, tau, stay, least)
    if stay < least:
        return f"{following} stays"
    return "even" if mean == tau else following


def writer_from_outcome(outcome: str) -> Size:
    """The next writer after a turn with this outcome."""
    return "large" if outcome.startswith("large") else "small"
