"""Explained exits, evictions and blocks, on the shipped examples: their numbers are the recorded ones and are re-derived."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import toys
from sizes import first_settings

from decodescope.engine.core.component import note_declarations, registry
from decodescope.engine.core.params import ParamError
from decodescope.engine.trace import Trace, TraceError
from decodescope.lab import explain, figure, open_trace
from decodescope.lab.cache.lifetimes import EntryLifetimes

from .runs import known


def forgeable(trace: Trace) -> Trace:
    """The same trace with its records in memory."""
    return Trace([copy.deepcopy(record) for record in trace.records()])


def test_an_exit_is_told_by_its_tests_against_their_bound() -> None:
    trace, early, whole = open_trace("early-exit"), 0, 0
    for step in trace.steps:
        assert step.exits
        why, left = explain(trace, step.step, what="exit"), step.exits[-1]
        assert why.agrees and why.numbers == [
            ("how sure", "c", left.tests[-1][1]),
            ("bound", "b", left.tests[-1][2]),
        ]
        assert len(why.lines[0].sums) == len(left.tests)
        early += f"Left after {left.depth} of 8" in why.title
        whole += why.title == "All 8 layers ran"
    assert early > 20 and early + whole == len(trace.steps)
    checked = open_trace("exit-checked")
    why, left = explain(checked, 6, what="exit"), checked.steps[6].exits[-1]
    assert why.title == "All 8 layers ran" and why.agrees and len(why.lines[0].sums) == len(left.tests) == 6
    forged = forgeable(trace)
    step = forged.steps[0]
    step.exits[-1].tests[0][1] = 0.9  # type: ignore[index]
    assert explain(forged, 0, what="exit").agrees is False, "it should have left at the first test"


def test_an_eviction_is_told_by_the_policy_s_own_words_and_the_recorded_scores() -> None:
    trace, below = open_trace("h2o"), 0
    lives = EntryLifetimes.of(trace)
    steps = [step for step in trace.steps if any(c.evicted_count for c in step.cache)]
    for step in steps:
        change = next(c for c in step.cache if c.lane == "target")
        assert change.evicted is not None
        layer, head, position = (int(x) for x in change.evicted[0])
        why = explain(trace, step.step, what="eviction", position=position, layer=layer, head=head)
        assert why.title == "Evicted" and why.where.startswith(
            f"position {position}, layer {layer}, KV head {head}"
        )
        assert (
            why.lines[0].words.startswith(registry("policy")["h2o"].goes) and "12 recent" in why.lines[0].sums
        )  # type: ignore[attr-defined]
        (_, _, score), (_, _, cut) = why.numbers
        assert score is not None and cut is not None and score <= cut + 0.01, "shades are coarse"
        below += score < cut
        assert lives.eviction_steps(step.step)[layer * lives.heads + head, position] == step.step
    assert len(steps) == len(trace.steps) - 14 > 20 and 3 * below > 2 * len(steps)
    first = explain(trace, steps[3].step, what="eviction")
    assert explain(
        trace,
        steps[3].step + 5,
        what="eviction",
        position=int(first.where.split()[1].strip(",")),
        layer=0,
        head=0,
    )
    later = explain(trace, len(trace.steps) - 1, what="eviction", position=len(lives.tokens) - 2)
    assert later.title == "Held" and "newest" in later.lines[1].words
    forged = forgeable(trace)
    last = forged.steps[-1]
    change = next(c for c in last.cache if c.evicted is not None)
    change.evicted = np.array([[0, 0, last.n - 1]], "<i4")
    assert explain(forged, last.step, what="eviction").agrees is False, "the newest entries are protected"


def test_an_eviction_by_age_is_told_and_derives() -> None:
    trace = windowed()
    step = next(step.step for step in trace.steps if any(c.evicted_count for c in step.cache))
    why = explain(trace, step, what="eviction")
    assert why.agrees and "oldest" in why.lines[0].words and not why.numbers
    assert (
        explain(known("plain"), 2, what="eviction", position=0).lines[0].words
        == "This policy keeps every entry."
    )


@pytest.mark.parametrize("name", ["planned", "apar"])
def test_what_a_strategy_lets_go_is_not_called_evicted(name: str) -> None:
    trace = open_trace(name)
    lives = EntryLifetimes.of(trace)
    lost = [i for i, count in enumerate(lives.evicted) if count]
    assert lost and lives.went == "freed" and EntryLifetimes.of(open_trace("h2o")).went == "evicted"
    with pytest.raises(TraceError, match="freed is not recorded: texts that were read side by side"):
        explain(trace, lost[0], what="eviction")
    bar = figure(trace, "cache").data[-1]
    assert bar.name == "freed" and sum(bar.y) == sum(lives.evicted)


def windowed() -> Trace:
    """A run of a toy with a window of four entries as its cache."""
    import toys

    trace = toys.decode(toys.method(policy=("window", {"window": 4})), count=12).sink
    assert isinstance(trace, Trace)
    return trace


def test_every_policy_that_evicts_says_which_entries_leave() -> None:
    for name, policy in registry("policy").items():
        part = policy()
        assert bool(part.goes) == bool(part.does), name  # type: ignore[attr-defined]


def test_a_block_of_a_fixed_point_is_told_place_by_place() -> None:
    trace, more = (
        open_trace("jacobi"),
        open_trace("cllm"),
    )  # it settles several tokens in more of its passes
    several = 0
    for of, step in [(x, step) for x in (trace, more) for step in x.steps]:
        it, why = step.detail("fixed_point"), explain(of, step.step, what="step")
        assert why.agrees and why.test == f"{len(it.places)} of {len(it)} final"
        assert len(why.lines[1].sums) == len(it)
        several += len(it.places) > 1
    assert several > 6, "the test needs passes that settle several tokens"
    forged = forgeable(trace)
    block = forged.steps[2].detail("fixed_point")
    block.places, block.tokens = block.open.tolist(), block.candidate.tolist()
    block.rules = ["final"] * len(block)
    assert len(block) > 1, "the test needs a pass that leaves places"
    assert explain(forged, 2, what="step").agrees is False


@pytest.mark.parametrize("name", ["block", "first-rejection", "eagle"])
def test_a_draft_is_told_as_a_whole(name: str) -> None:
    trace = open_trace(name)
    steps = [step for step in trace.steps if step.drafted]
    for step in steps:
        why = explain(trace, step.step, what="step")
        assert why.agrees and why.title == f"{step.accepted} of {step.drafted} accepted"
    texts = [str(explain(trace, step.step, what="step")) for step in steps]
    repaired = [text for text in texts if "its own test failed" in text]
    assert bool(repaired) == (name == "block"), (
        "a later success repairs a failure in block verification alone"
    )


def test_what_parts_told_of_a_step_stands_with_its_block() -> None:
    trace = open_trace("adaptive")
    trace.header = replace(trace.header, tells=None)  # as in a record without declarations of its notes
    assert "recorded of this step" not in str(explain(trace, 1, what="step"))
    trace.header = replace(trace.header, tells=note_declarations(trace.header.method))
    said = str(explain(trace, 1, what="step"))
    assert "What the schedule recorded of this step:" in said


def test_a_wrong_question_is_refused_in_one_sentence() -> None:
    for more, why in (
        ({"what": "exits"}, "Choose one of exit, eviction, step"),
        ({"position": 3}, 'give what="eviction"'),
        ({"node": 1, "what": "exit"}, "leave node or what out"),
        ({"what": "eviction", "layer": 8}, "layer = 8: must be a whole number from 0 to 7"),
    ):
        with pytest.raises(ParamError, match=why):
            explain("h2o", 20, **more)  # type: ignore[arg-type]
    for what, why in (
        ("exit", "asked whether to leave"),
        ("eviction", "none has by then"),
        ("step", "holds no block"),
    ):
        with pytest.raises(TraceError, match=why):
            explain("h2o", 3, what=what)


@pytest.mark.parametrize(
    ("name", "settings"), first_settings(x for x in toys.variants("adaptive_depth") if x[0] != "all_layers")
)
def test_every_depth_rule_is_explained_by_its_own_tests(name: str, settings: dict) -> None:
    trace = toys.decode(toys.method(adaptive_depth=(name, settings)), count=8).sink
    for step in trace.steps:
        why = explain(trace, step.step, what="exit")
        assert why.agrees is not False and why.rule.startswith(name.replace("_", " "))
        if not step.exits:  # the skipped layers were known beforehand
            known = settings.get("skip", ())
            due = [
                x if x[0] != "l" else f"{kind}{x[1:]}"
                for x in known
                for kind in ("af" if x[0] == "l" else "a")
            ]
            said = [f"{line[0]}{line.split()[-1]}" for x in why.lines for line in x.sums]
            assert sorted(said) == sorted(due)
            continue
        left = step.exits[-1]
        assert ("feed-forward blocks" in why.title) == (left.closed is not None)
