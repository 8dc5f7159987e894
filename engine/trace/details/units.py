"""Lexical units: what a pass with placeholders behind the text foresaw, and how much of it was taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Cut = Literal["all", "bar", "repeat", "end"]


@dataclass
class Unit:
    """The tokens that one pass gave, the first by the text's last row, each other by a placeholder's.

    tokens: ids, those that were refused included;  p: of each the model's probability, before the sampler, in doubles
    taken:  so many were: the first, and behind it the longest run that reaches the bar
    cut:    why no more: the next one is below the "bar", or a "repeat" of the one before it; "all" were taken; or the text has
            its "end" there
    """

    tokens: list[int]
    p: list[float]
    taken: int
    cut: Cut


def taken(tokens: Sequence[int], p: Sequence[float], bar: float, repeats: bool) -> tuple[int, Cut]:
    """How many of the tokens are taken, and why no more. repeats: whether a token may be that before it."""
    for i in range(1, len(tokens)):
        if p[i] < bar:
            return i, "bar"
        if not repeats and tokens[i] == tokens[i - 1]:
            return i, "repeat"
    return len(tokens), "all"


def check_unit(unit: Unit, emitted: list[int], knobs: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the unit of a step that emitted these tokens, by a strategy with these knobs."""
    bar, repeats = knobs.get("beta"), knobs.get("repeats")
    if not 1 <= unit.taken <= len(unit.tokens) == len(unit.p):
        yield f"its unit takes {unit.taken} of {len(unit.tokens)} tokens with {len(unit.p)} probabilities"
        return
    if not all(-1e-9 <= x <= 1 + 1e-9 for x in unit.p):
        yield "its unit has a probability that is none"
    if emitted != unit.tokens[: unit.taken]:
        yield f"it emitted {emitted}, but its unit is {unit.tokens[: unit.taken]}"
    if not isinstance(bar, int | float) or not isinstance(repeats, bool):
        yield "the header's strategy lacks the knobs from which a unit follows"
        return
    due, cut = taken(unit.tokens, unit.p, bar, repeats)
    if (unit.taken, unit.cut) != (due, cut) and not (unit.cut == "end" and unit.taken <= due):
        yield f"it takes {unit.taken} tokens of its unit ({unit.cut}), but the bar of {bar:g} gives {due} ({cut})"
