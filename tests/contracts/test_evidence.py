"""The requirements for an acceptance rule's record: it is re-derived without the rule, and a changed number is found."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import toys
from entries import entry
from sizes import by_turns

from decodescope.engine.core.component import registry
from decodescope.engine.trace import Step, Trace, check
from decodescope.engine.trace.checks.decisions import step_trials

CHAIN, TREE = ("draft_model", {"max_draft_tokens": 3}), ("draft_model", {"max_draft_tokens": 3, "width": 2})
DRAFTERS = {
    "block": CHAIN,
    "static_ensemble": CHAIN,
    "fly": CHAIN,
    "judge": CHAIN,
    "lantern": TREE,
    "leniency": TREE,
    "lossless": TREE,
    "relaxed": CHAIN,
    "spectr": ("chains", {"max_draft_tokens": 3, "chains": 3}),
    "synthetic": CHAIN,
    "typical": TREE,
}
RULES = toys.variants("acceptance")


@cache
def recorded(rule: str, which: int) -> Trace:
    """A run with the rule in one of its settings."""
    parts = dict(
        drafter=entry(DRAFTERS, rule, "DRAFTERS of tests/contracts/test_evidence.py"), sampler="temperature"
    )
    return toys.decode(toys.method(acceptance=RULES[which], **parts), count=60, seed=2).sink


def runs() -> list[tuple[str, int]]:
    return [(name, i) for i, (name, _) in enumerate(RULES)]


def tried(trace: Trace) -> list[Step]:
    return [step for step in trace.steps if step.trials is not None]


def of(trace: Trace, step: int) -> list[str]:
    return [one for one in check(trace).problems if one.startswith(f"step {step}: ")]


@pytest.mark.parametrize(("rule", "which"), runs())
def test_a_run_is_derived_again_from_what_its_header_says(rule: str, which: int) -> None:
    trace = recorded(rule, which)
    report = check(trace)
    assert list(trace.header.tellings) == [rule] and report.ok and not report.notes, report
    assert report.counts["trials"] > 20 and not any(
        "not re-derived" in x for x in report.counts if x[:4] != "resi"
    ), report


@pytest.mark.parametrize(("rule", "which"), runs())
def test_every_verdict_that_is_turned_round_is_found(rule: str, which: int) -> None:
    for number, step in enumerate(tried(recorded(rule, which))[:12]):
        trace = copy.deepcopy(recorded(rule, which))
        trials = tried(trace)[number].trials
        i = number % len(trials.ok)
        trials.ok[i] = not trials.ok[i]
        assert any(f"trial {i} says ok = {trials.ok[i]}" in one for one in of(trace, step.step)), (
            rule,
            step.step,
            i,
        )


@pytest.mark.parametrize(
    ("rule", "which", "column"),
    by_turns(4, [(*one, column) for one in runs() for column in ("num", "den", "threshold")]),
)
def test_what_u_was_held_against_cannot_be_moved(rule: str, which: int, column: str) -> None:
    """num, den and threshold agree with each other, and the rule's own additions show how they were computed."""
    for step in tried(recorded(rule, which))[:6]:
        trace = copy.deepcopy(recorded(rule, which))
        other = next(x for x in trace.steps if x.step == step.step)
        values = getattr(other.trials, column)
        if values is None:
            continue
        moved = [i for i, x in enumerate(values) if x and (column != "threshold" or x < 0.9)]
        if not moved or (column == "threshold" and other.trials.q[moved[0]] < 1e-3):
            continue
        values[moved[0]] *= 0.9
        assert of(trace, step.step), (rule, step.step, column)


@pytest.mark.parametrize(("rule", "which"), runs())
def test_what_a_rule_adds_holds_what_it_says_it_holds(rule: str, which: int) -> None:
    telling = registry("acceptance")[rule].telling
    for column in telling.columns:
        trace = copy.deepcopy(recorded(rule, which))
        step = tried(trace)[0]
        assert step_trials(trace.header, step).wrong_columns() == []
        del step.rule[column.name]
        assert any(f"rule.{column.name} does not hold" in one for one in of(trace, step.step))


@pytest.mark.parametrize("rule", registry("acceptance"))
def test_under_a_greedy_law_a_rule_that_matches_is_exact_matching(rule: str) -> None:
    drafter = entry(DRAFTERS, rule, "DRAFTERS of tests/contracts/test_evidence.py")
    trace = toys.decode(
        toys.method(drafter=drafter, acceptance=rule, sampler="greedy"), count=30, seed=2
    ).sink
    tests = [x for step in tried(trace) if (x := step_trials(trace.header, step)) is not None]
    assert check(trace).ok and len(tests) > 5
    assert {x.matching for x in tests} == {registry("acceptance")[rule].matches}
