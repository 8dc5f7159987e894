"""Forks: runs that repeat another run up to a step and then go on differently, as their header records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from decodescope.engine.core.roles import TARGET

from ..records.events import Header
from ..values.limits import TraceError
from .record_decoder import read_dataclass

MOST = 16  # legs of a run
# if one of these changes, the models read the text again
ANEW = frozenset({"strategy", "drafter", "schedule", "policy", "kv_compression"})


@dataclass(frozen=True)
class ForkLeg:
    """A part of a run that was made with one method. first: its first step;  forced: node -> verdict, of that step;  parts:
    the descriptions of the method's parts, as in a header;  models: role -> what a header says of its model (of the target,
    of its heads), for roles that a later part gave to another one"""

    first: int
    method: dict[str, Any]
    seed: int
    max_new: int
    forced: dict[int, bool]
    parts: dict[str, Any] = field(default_factory=dict)
    models: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _BaseRun:
    """How the run went on that was left."""

    method: dict[str, Any]
    seed: int
    max_new_tokens: int
    parts: dict[str, Any] = field(default_factory=dict)
    models: dict[str, Any] = field(default_factory=dict)
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
    models: dict[str, Any] = {}
    later: list[ForkLeg] = []
    try:
        while fork is not None:
            turn = read_dataclass(_ForkRecord, fork)
            later.insert(0, ForkLeg(turn.step, method, seed, max_new, _forced_verdicts(turn), parts, models))
            if len(later) > MOST or turn.step < 0 or (len(later) > 1 and turn.step >= later[1].first):
                raise TraceError("its turns do not follow each other")
            base = turn.base
            method = base.method
            parts = base.parts
            models = {**models, **base.models}
            seed = base.seed
            max_new = base.max_new_tokens
            fork = base.fork
        if min(seed, max_new, *(n for leg in later for n in (leg.seed, leg.max_new))) < 0:
            raise TraceError("a count below 0")
    except TraceError:
        raise TraceError(
            "The header's word on where this run was forked off makes no sense: open an intact copy."
        ) from None
    return [ForkLeg(0, method, seed, max_new, {}, parts, models), *later]


def reread_steps(header: Header, kinds: Collection[str] = ANEW) -> set[int]:
    """The steps before which the models read the text again, since a part of these kinds or a model changed; their caches
    differ. Raises TraceError."""
    return {
        b.first
        for a, b in pairwise(fork_legs(header))
        if a.models != b.models or any(a.method.get(kind) != b.method.get(kind) for kind in kinds)
    }


def fork_record(
    header: Header,
    step: int,
    name: str,
    change: dict[str, Any],
    forced: dict[int, bool],
    models: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The fork record in the header of a run that leaves the run with this `header` at `step`. models: see `ForkLeg`"""
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
        **({"models": models} if models else {}),
        **({"fork": fork} if fork is not None else {}),
    }
    record = {"of": header.run, "step": step, "name": name, "change": change}
    return {**record, "forced": [[node, ok] for node, ok in sorted(forced.items())], "base": base}


def method_at(header: Header, step: int) -> dict[str, Any]:
    """The method of `step`; the header's own if its fork record cannot be read."""
    leg = _leg_at(header, step)
    return header.method if leg is None else leg.method


def header_at(header: Header, step: int) -> Header:
    """The header with the method and the models of `step`, and with the descriptions of that method's parts."""
    leg = _leg_at(header, step)
    if leg is None or (leg.method is header.method and not leg.models):
        return header
    header = replace(header, method=leg.method, parts=leg.parts)
    return replace_models(header, leg.models)


def header_before(header: Header, step: int) -> Header:
    """The same of the step before `step`: with the models that a fork at `step` begins with."""
    return header_at(header, max(step - 1, 0))


def replace_models(header: Header, models: Mapping[str, Any]) -> Header:
    """The header with other models. models: role -> what it says of them, see `ForkLeg`"""
    lanes = {role: x for role, x in models.items() if role != TARGET}
    return replace(header, model={**header.model, **models.get(TARGET, {})}, lanes={**header.lanes, **lanes})


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
