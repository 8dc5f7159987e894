"""Forks: a run that was made anew up to a step of another one, and then went on otherwise, as its header tells it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .events import Header
from .limits import TraceError

MOST = 16  # legs of a run
ANEW = frozenset({"strategy", "drafter", "schedule", "policy"})  # where one of them is another, the models read the text anew


@dataclass(frozen=True)
class Leg:
    """A part of a run that was made with one method. first: its first step;  forced: node -> verdict, of that step"""

    first: int
    method: dict[str, Any]
    seed: int
    max_new: int
    forced: dict[int, bool]


def legs(header: Header) -> list[Leg]:
    """The parts of the run in order, one if it is no fork. Raises TraceError for a header that tells no such story."""
    method, seed, max_new, fork = header.method, header.seed, header.max_new_tokens, header.fork
    made: list[Leg] = []
    try:
        while fork is not None:
            forced = {int(node): bool(ok) for node, ok in fork["forced"]}
            made.insert(0, Leg(_whole(fork["step"]), _object(method), _whole(seed), _whole(max_new), forced))
            if len(made) > MOST or (len(made) > 1 and made[0].first >= made[1].first):
                raise ValueError
            base = fork["base"]
            method, seed, max_new, fork = base["method"], base["seed"], base["max_new_tokens"], base.get("fork")
        return [Leg(0, _object(method), _whole(seed), _whole(max_new), {}), *made]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise TraceError("The header's word on where this run was forked off makes no sense: open an intact copy.") from None


def read_anew(header: Header) -> set[int]:
    """The steps before which the models read the text anew, so that their caches are others. Raises TraceError."""
    return {b.first for a, b in pairwise(legs(header)) if any(a.method.get(kind) != b.method.get(kind) for kind in ANEW)}


def forked(header: Header, step: int, name: str, change: dict[str, Any], forced: dict[int, bool]) -> dict[str, Any]:
    """What the header of a fork says of the run with this `header`, from whose `step` on it goes its own way."""
    method, seed, max_new, fork = header.method, header.seed, header.max_new_tokens, header.fork
    while fork is not None and fork["step"] >= step:  # that turn is not taken
        base = fork["base"]
        method, seed, max_new, fork = base["method"], base["seed"], base["max_new_tokens"], base.get("fork")
    base = {"method": method, "seed": seed, "max_new_tokens": max_new, **({"fork": fork} if fork is not None else {})}
    told = {"of": header.run, "step": step, "name": name, "change": change}
    return {**told, "forced": [[node, ok] for node, ok in sorted(forced.items())], "base": base}


def method_at(header: Header, step: int) -> dict[str, Any]:
    """The method that `step` was made with; the header's own where it tells no story that can be read."""
    if header.fork is None:
        return header.method
    try:
        return [leg for leg in legs(header) if leg.first <= step][-1].method
    except TraceError:
        return header.method


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    return value
