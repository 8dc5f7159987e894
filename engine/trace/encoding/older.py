"""Older: traces of schema 1.0, in which a rule said nothing of itself and its trials named no numerator and denominator.

Six rules wrote such traces, and those records are frozen: here they become what 1.1 records. What the six say of themselves
lies beside this file, made from the rules' own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ..records.events import Step, Trials
from ..records.evidence import Telling
from ..values.limits import OWN
from .typed import Reading, converter

_Renewed = tuple[Trials, dict[str, Any]]


@cache
def _tellings() -> dict[str, Telling]:
    plain = json.loads(Path(__file__).with_name("older.json").read_text(encoding="utf-8"))
    convert = converter(Telling)
    return {name: convert(telling, Reading(b"", 0, OWN, 0)) for name, telling in plain.items()}


def told_of(name: str) -> Telling | None:
    """What the rule `name` of a trace of 1.0 says of itself; None for one that there was not."""
    return _tellings().get(name)


def renewed(name: str, trials: Trials, step: Step) -> _Renewed | None:
    """The trials of a step of 1.0, and what its rule added, as 1.1 records them; None where the record does not hold them."""
    if step.rule is None:  # exact matching, or verdicts that were forced
        return trials, {}
    renew = _RENEW.get(name)
    return (trials, {}) if renew is None else renew(trials, step, step.rule)


def _block(trials: Trials, step: Step, rule: dict[str, Any]) -> _Renewed | None:
    h, w = _numbers(rule.get("h")), _numbers(rule.get("w"))
    u = _numbers(rule.get("u", trials.u))
    if h is None or u is None or not len(h) == len(u) == len(trials.node):
        return None
    return replace(trials, u=u, num=h, den=[1.0] * len(h)), {} if w is None else {"w": w}


def _leniency(trials: Trials, step: Step, rule: dict[str, Any]) -> _Renewed | None:
    f = _numbers(rule.get("f"))
    return None if f is None or len(f) != len(trials.node) else (replace(trials, num=f), {})


def _spectr(trials: Trials, step: Step, rule: dict[str, Any]) -> _Renewed | None:
    plans = {name: _numbers(rule.get(name)) for name in ("alive", "rho", "b", "A", "optimum")}
    rho = plans["rho"]
    den = []
    place = 0
    for q, ok in zip(trials.q, trials.ok, strict=True):
        if rho is None or place >= len(rho):
            return None
        den.append(rho[place] * q)
        place += ok
    return replace(trials, den=den), {name: x for name, x in plans.items() if x is not None}


def _typical(trials: Trials, step: Step, rule: dict[str, Any]) -> _Renewed | None:
    bounded, entropies = replace(trials, den=list(trials.threshold)), _numbers(rule.get("entropy"))
    if (
        entropies is None
        or step.tops is None
        or step.draft is None
        or len(entropies) != len(step.tops.places)
    ):
        return bounded, {}
    # every visited place; since 1.1 those with guesses
    of = dict(zip(step.tops.places.tolist(), entropies, strict=True))
    parents = dict.fromkeys(step.draft.parents[node] for node in trials.node)
    return bounded, {"entropy": [of[place] for place in parents]} if parents.keys() <= of.keys() else {}


def _judge(trials: Trials, step: Step, rule: dict[str, Any]) -> _Renewed | None:
    j, t = _numbers(rule.get("j")), rule.get("t")
    return (
        None
        if j is None or len(j) != len(trials.node) or not isinstance(t, int | float)
        else (trials, {"j": j, "t": t})
    )


def _numbers(values: Any) -> list[Any] | None:
    return values if isinstance(values, list) and all(type(one) in (int, float) for one in values) else None


_RENEW: dict[str, Callable[[Trials, Step, dict[str, Any]], _Renewed | None]] = {
    "block": _block,
    "judge": _judge,
    "leniency": _leniency,
    "spectr": _spectr,
    "typical": _typical,
}
