"""Forks: runs that repeat another run up to a step and then go on differently, as their header records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from ..records.events import Header
from ..values.limits import TraceError
from .record_decoder import read_dataclass

MOST = 16  # legs of a run
# if one of these changes, the models read the text again
ANEW = frozenset({"strategy", "drafter", "schedule", "policy", "kv_compression"})


@dataclass(frozen=True)
class ForkLeg:
    """A part of a run that was made with one method. first: its first step;  forced: node -> verdict, of that step;  parts:
    the descriptions of the method's parts, as in a header"""

    first: int
    method: dict[str, Any]
    seed: int
    max_new: int
    forced: dict[int, bool]
    parts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _BaseRun:
    """How the run went on that was left."""

    method: dict[str, Any]
    seed: int
    max_new_tokens: int
    parts: dict[str, Any] = field(default_factory=dict)
    fork: dict[str, Any] | None = None


@dataclass(frozen=True)
class _ForkRecord:
    """A header's record of a fork, as far as it is needed to repeat the run."""

    step: int
    forced: list[list[Any]]
    base: _BaseRun


def fork_legs(header: Header) -> list[ForkLeg]:
    """The parts of the run in order, one if it is not a fork. Raises TraceError for a header without a readable fork record."""
    method = header.method
    parts = header.parts
    seed = header.seed
    max_new = header.max_new_tokens
    fork = header.fork
    later: list[ForkLeg] = []
    try:
        while fork is not None:
            turn = read_dataclass(_ForkRecord, fork)
            later.insert(0, ForkLeg(turn.step, method, seed, max_new, _forced_verdicts(turn), parts))
            if len(later) > MOST or turn.step < 0 or (len(later) > 1 and turn.step >= later[1].first):
                raise TraceError("its turns do not follow each other")
            base = turn.base
            method = base.method
            parts = base.parts
            seed = base.seed
            max_new = base.max_new_tokens
            fork = base.fork
        if min(seed, max_new, *(n for leg in later for n in (leg.seed, leg.max_new))) < 0:
            raise TraceError("a count below 0")
    except TraceError:
        raise TraceError(
            "The header's word on where this run was forked off makes no sense: open an intact copy."
        ) from None
    return [ForkLeg(0, method, seed, max_new, {}, parts), *later]


def reread_steps(header: Header, kinds: Collection[str] = ANEW) -> set[int]:
    """The steps before which the models read the text again because a part of these kinds changed; their caches differ.
    Raises TraceError."""
    return {
        b.first
        for a, b in pairwise(fork_legs(header))
        if any(a.method.get(kind) != b.method.get(kind) for kind in kinds)
    }


def fork_record(
    header: Header, step: int, name: str, change: dict[str, Any], forced: dict[int, bool]
) -> dict[str, Any]:
    """The fork record in the header of a run that leaves the run with this `header` at `step`."""
    method = header.method
    parts = header.parts
    seed = header.seed
    max_new = header.max_new_tokens
    fork = header.fork
    while fork is not None and fork["step"] >= step:  # that turn is not taken
        base = fork["base"]
        method = base["method"]
        parts = base.get("parts", {})
        seed = base["seed"]
        max_new = base["max_new_tokens"]
        fork = base.get("fork")
    base = {
        "method": method,
        "seed": seed,
        "max_new_tokens": max_new,
        "parts": parts,
        **({"fork": fork} if fork is not None else {}),
    }
    record = {"of": header.run, "step": step, "name": name, "change": change}
    return {**record, "forced": [[node, ok] for node, ok in sorted(forced.items())], "base": base}


def method_at(header: Header, step: int) -> dict[str, Any]:
    """The method of `step`; the header's own if its fork record cannot be read."""
    leg = _leg_at(header, step)
    return header.method if leg is None else leg.method


def header_at(header: Header, step: int) -> Header:
    """The header with the method of `step`, and with the descriptions of that method's parts."""
    leg = _leg_at(header, step)
    if leg is None or leg.method is header.method:
        return header
    return replace(header, method=leg.method, parts=leg.parts)


def _leg_at(header: Header, step: int) -> ForkLeg | None:
    """The leg that `step` belongs to; None if there is no fork, or the header has no readable fork record."""
    if header.fork is None:
        return None
    try:
        return [leg for leg in fork_legs(header) if leg.first <= step][-1]
    except TraceError:
        return None


def _forced_verdicts(turn: _ForkRecord) -> dict[int, bool]:
    """node -> verdict."""
    if not all(len(entry) == 2 and type(entry[0]) is int for entry in turn.forced):
        raise TraceError("a verdict is no pair of a node and true or false")
    return {node: bool(accepted) for node, accepted in turn.forced}
