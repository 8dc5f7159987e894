"""An acceptance rule has one home.

One file outside the package is run, recorded, checked, described and drawn, and no other file is edited for it.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import toys
from borrowed_rule import BorrowedRule
from toylab import Words

from decodescope.engine import Method, Session
from decodescope.engine.core.component import registry
from decodescope.engine.session.replay.whatif import WhatIfChange, derive
from decodescope.engine.trace import Step, Trace, check, open_trace
from decodescope.lab import decisions, explain
from decodescope.lab.wire.messages import messages

from .test_card import Scope, near

SENTENCE = "Patience stretches the target's residual by how unsure it is."
CLOSE = "where the target hesitates, the draft has its way"


@cache
def recorded() -> Trace:
    """A run with two guesses at every place."""
    target, draft = toys.target(seed=toys.LIVELY), toys.draft(noise=0.3, seed=toys.LIVELY)
    target.tokenizer = draft.tokenizer = Words([f" {letter}" for letter in "abcdefghijklm"])  # type: ignore[assignment]
    parts = toys.method(drafter=("draft_model", {"max_draft_tokens": 3, "width": 2}), sampler="temperature")
    method = Method(drafter=parts.drafter, sampler=parts.sampler, acceptance=BorrowedRule(gain=0.7))
    run = Session(target, method, toys.PROMPT, models={"draft": draft}, max_new_tokens=60)
    run.sink = Trace()
    for _ in run.stream():
        pass
    return run.sink


def tried(trace: Trace) -> list[Step]:
    return [step for step in trace.steps if step.trials is not None]


def test_no_part_of_the_package_knows_it() -> None:
    assert "borrowed_rule" not in registry("acceptance") and not recorded().header.lossless
    assert recorded().header.method["acceptance"] == {"name": "borrowed_rule", "gain": 0.7}
    spared = [u * q >= r for s in tried(recorded()) for u, q, r, ok in zip(*columns(s), strict=True) if ok]
    assert sum(spared) > 2, "the test needs guesses that the lossless rule would have refused"


def columns(step: Step) -> tuple:
    t = step.trials
    return t.u, t.q, t.r, t.ok


def test_its_verdicts_are_derived_again_from_the_file_where_torch_is_missing(tmp_path: Path) -> None:
    path = recorded().save(tmp_path / "borrowed.dstrace")
    report = check(open_trace(path))
    assert report.ok and report.counts["patient trials"] > 40 and not report.notes, report
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from decodescope.engine.trace import check, open_trace\n"
        "from decodescope.lab import decisions, explain\n"
        "trace = open_trace(sys.argv[1]); print(check(trace)); print(explain(trace, *next(decisions(trace, ok=False))))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=True
    ).stdout
    assert (
        "agrees with itself" in said
        and "patient trials" in said
        and SENTENCE in said
        and "follows from the numbers" in said
    )


LIES = {
    "another verdict": (lambda s: s.trials.ok.__setitem__(0, not s.trials.ok[0]), "trial 0 says ok = "),
    "another draw": (
        lambda s: s.trials.u.__setitem__(0, 0.0 if not s.trials.ok[0] else 0.999999),
        "says ok = ",
    ),
    "another numerator": (lambda s: s.trials.num.__setitem__(0, s.trials.num[0] * 1.001), "num at 1 is "),
    "another entropy": (lambda s: s.rule["H"].__setitem__(0, s.rule["H"][0] + 0.1), "num at 1 is "),
    "no entropies": (
        lambda s: s.rule["H"].clear(),
        "rule.H does not hold the numbers that the header says it holds",
    ),
    "another path": (lambda s: setattr(s, "path", []), "the path is []"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_it_is_found(lie: str) -> None:
    tell, says = LIES[lie]
    trace = copy.deepcopy(recorded())
    possible = [x for x in tried(trace) if x.path and not 0 < x.trials.num[0] < x.trials.q[0] * 1e-3]
    step = next((x for x in possible if x.trials.num[0] < x.trials.q[0]), possible[0])
    tell(step)
    assert any(one.startswith(f"step {step.step}: ") and says in one for one in check(trace).problems), check(
        trace
    )


def test_its_decisions_are_told_in_its_own_words() -> None:
    trace, told = recorded(), 0
    for step, node in decisions(trace):
        e, t = explain(trace, step, node), trace.steps[step].trials
        i = t.node.index(node)
        values = {word: value for word, _, value in e.numbers}
        assert (
            e.agrees and values["stretched"] == t.num[i] and values["patient threshold"] == t.num[i] / t.q[i]
        )
        assert e.rule.startswith("borrowed_rule") and f"u·q {'<' if t.ok[i] else '≥'} f:" in e.test
        assert SENTENCE in str(e) and "f = r · (1 + 0.7 · H) = " in str(e) and CLOSE in str(e)
        told += 1
    assert told > 40
    own = next(s for s in trace.steps if s.extra is not None and s.extra.origin == "residual")
    left = "No guess stayed here. The token comes from what patience left of the target's distribution."
    assert left in str(explain(trace, own.step))


def test_what_if_asks_it_by_name_once_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry("acceptance"), "borrowed_rule", BorrowedRule)
    trace, flips = recorded(), 0
    for step in tried(trace)[:12]:
        node, ok = step.trials.node[0], step.trials.ok[0]
        found = derive(
            trace.header, trace.steps[: step.step], step, node, WhatIfChange(u=0.999999 if ok else 0.0)
        )
        flips += found.trials[0].ok != ok
        assert " = f / q: " in " ".join(found.lines)
    assert flips > 3


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_its_card_is_drawn_with_its_test_its_numbers_and_its_sentence(driver: Any) -> None:
    trace = copy.deepcopy(recorded())  # its messages share lists with it, and some are changed below
    step = next(
        s for s in tried(trace) if s.path and not all(s.trials.ok) and s.trials.num[0] < s.trials.q[0]
    )
    t, told = step.trials, list(messages(trace))
    scope = Scope(driver)
    head, *steps = [m for m in told if m["kind"] != "end"]
    js = "([head, steps]) => steps.map((step) => S.rederives(step, head))"
    assert set(scope.page.evaluate(js, [head, steps])) == {True}
    scope.show(told, step.step)
    for i, node in enumerate(t.node):
        scope.page.evaluate("([step, node]) => view.select({ step, node })", [step.step, node + 1])
        scope.settled()
        sums, card = scope.sums(), scope.text(".decision")
        assert (
            scope.text(".decision .agree") == "re-derived" and scope.text(".decision .test th") == "patience"
        )
        assert near(sums["r·(1 + 0.7·H)"], t.num[i]) and (i or near(sums["H, nats"], step.rule["H"][0]))
        assert near(sums["f / q"], t.num[i] / t.q[i]) and "patient threshold" in card and "-fold." in card
        assert ("<" if t.ok[i] else "≥") in sums["u < f / q"]
    assert "✓ re-derived" in scope.text(".headline")
    head["telling"]["relations"][0][3] = (
        0  # a required relation no longer holds: the page checks relations too
    )
    js = "([head, steps]) => steps.filter((x) => x.verdict.tried.length).map((step) => S.rederives(step, head))"
    steps[step.step]["rule"]["H"][0] += 0.5
    assert scope.page.evaluate(js.replace(".length)", f".length && x.i === {step.step})"), [head, steps]) == [
        False
    ]
    assert not scope.troubles, scope.troubles
