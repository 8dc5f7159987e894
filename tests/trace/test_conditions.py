"""Conditions: what they find in steps with known numbers, what they refuse, and that no text can do harm."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
import toys
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodescope.engine.session.method import Method
from decodescope.engine.trace import Step
from decodescope.engine.trace.query.condition_grammar import DEEPEST, FUNCTIONS, LONGEST, ConditionError
from decodescope.engine.trace.query.conditions import Condition
from decodescope.engine.trace.query.facts import FACTS, StepFacts
from decodescope.engine.trace.records.events import Exit

LEVELS = dict(levels=["summary", "decisions"])


def header(toy: Any, **more: Any) -> Any:
    made = toy.header(**{**LEVELS, **more})
    made.method = {
        **made.method,
        "policy": {"name": "streaming_llm", "sink_tokens": 2},
        "adaptive_depth": {"name": "confidence_exit"},
    }
    return made


def found(toy: Any, text: str, steps: list[Step] | None = None) -> list[int]:
    """Return the steps of "pdpd" (plain and drafted steps in turn) where the condition holds."""
    watch = Condition(text).watch_run(header(toy))
    return [s.step for s in steps or toy.steps("pdpd") if watch.see(s, toy.header().pieces).value is True]


# A drafted step of the toy: a tree 0 - (1, 2), p = .5 .1 .25, q = .8 .4 .2; node 0 accepted, 1 and 2 refused.
HOLDS = [
    ("first reject", [1, 3]),
    ("not first reject", [0, 2]),
    ("accepted == 1", [1, 3]),
    ("accepted == 0", [0, 2]),
    ("drafted == 3 and rejected == 2", [1, 3]),
    ("p/q < 0.3", [1, 3]),
    ("p/q < 0.2", []),
    ("0.2 < p/q <= 0.25", [1, 3]),
    ("p/q < 0.3 and depth == 2", [1, 3]),
    ("p/q < 0.3 and depth == 1", []),  # both must hold for one node, not for two
    ("any(p/q < 0.3) and any(depth == 1)", [1, 3]),
    ("all(q > 0.1)", [1, 3]),
    ("all(q > 0.3)", []),
    ("count(p < 0.3) == 3", [1, 3]),  # the target's own token is a node too
    ("max(p) >= 0.5", [1, 3]),
    ("first reject and depth == 2", [1, 3]),
    ("first reject and depth == 1", []),
    ('verdict == "rejected" and q == 0.2', [1, 3]),
    ("not (accepted == 0)", [1, 3]),
    ("step == 2 or step == 3", [2, 3]),
    ("1 <= step < 3", [1, 2]),
    ("step ms > 0.009", [0, 1, 2, 3]),
    ("mean(accepted) > 0.4", [1, 3]),
    ("sum(tokens) >= 4", [2, 3]),
    ("alpha < 0.5", [1, 2, 3]),
    ("-step + 1 == -1", [2]),
    ("step * 2 >= 4 and n / 0 == 1", []),
    ("n / 0 == 1 or step == 0", [0]),
    ("not (n / 0 == 1)", []),  # unknown is neither true nor false
]


@pytest.mark.parametrize(("text", "steps"), HOLDS)
def test_a_condition_holds_where_its_numbers_say(toy: Any, text: str, steps: list[int]) -> None:
    assert found(toy, text) == steps


def test_what_a_step_lost_left_and_said_is_found(toy: Any) -> None:
    import numpy as np

    steps = toy.steps("ppp")
    steps[1].cache = [toy.change(1, 8, evicted_count=2, evicted_all=np.array([1, 5], np.int32))]
    steps[2].exits = [Exit(2, "confidence")]
    steps[2].emitted, steps[2].extra.token = [4], 4
    assert found(toy, "evicts a sink", steps) == [1] == found(toy, "evicts position 5", steps)
    assert found(toy, "evicts position 2", steps) == [] and found(toy, "evicted >= 2", steps) == [1]
    assert found(toy, "exit layer < 3", steps) == [2] == found(toy, 'text contains " b"', steps)
    assert found(toy, 'token in {" b", 49}', steps) == [2] == found(toy, "token == 4", steps)
    assert found(toy, 'token contains "b" or token == "zz"', steps) == [2]
    steps[1].cache[0].evicted_all = None  # counted, not listed: which entries left is unknown
    assert found(toy, "evicts a sink", steps) == [] == found(toy, "not evicts a sink", steps[1:2])


def test_a_hit_names_its_node_and_its_numbers(toy: Any) -> None:
    step = toy.steps("pd")[1]
    hit = Condition("p/q < 0.3").watch_run(header(toy)).see(step, {})
    assert hit.node == 1 and "node 2" in hit.why and "p = 0.1, q = 0.4" in hit.why
    assert Condition("first reject").watch_run(header(toy)).see(step, {}).node == 1
    hit = Condition("accepted == 1").watch_run(header(toy)).see(step, {})
    assert hit.node is None and "accepted = 1" in hit.why


def test_a_figure_is_watched_step_by_step(toy: Any) -> None:
    def values(text: str) -> list[Any]:
        watch = Condition(text, number=True).watch_run(header(toy))
        return [watch.see(s, {}).value for s in toy.steps("pdpd")]

    assert values("accepted") == [0, 1, 0, 1] and values("mean(accepted)") == [0, 0.5, 1 / 3, 0.5]
    assert values("p / q")[1] == 0.5 / 0.8 and values("p/q")[0] is None
    assert values("alpha") == [None, 1 / 3, 1 / 3, 1 / 3] and values("max(p) - min(p)")[1] == pytest.approx(
        0.4
    )


@pytest.mark.parametrize("older", [False, True])
def test_rank_position_and_id_of_nodes_are_those_of_the_text_and_of_the_draft(older: bool) -> None:
    """older: a trace without the draft's own distributions, whose ranks are among the tokens shown."""
    drawn = toys.method(drafter=("draft_model", {"max_draft_tokens": 3}), sampler="temperature")
    run = toys.decode(drawn, count=30, level="decisions")
    text = [*run.sink.header.prompt.tolist(), *run.end.tokens]
    seen = Counter[str]()
    for step in run.sink.steps:
        own = step.draft_tops
        step.draft_tops = None if older else own
        facts = StepFacts(step, run.sink.header, {})
        rows = zip(
            *(facts.column(x) for x in ("id", "position", "draft_rank", "verdict")),
            facts.parents,
            strict=True,
        )
        for token, position, rank, verdict, place in rows:
            seen[verdict] += 1
            if verdict not in ("rejected", "not reached"):
                assert text[position] == token
            (at,) = [*np.flatnonzero(step.tops.places == place), -1][:1]
            q = step.tops.q[at] if at >= 0 else np.zeros(1)
            if at < 0 or not q.any():
                assert rank is None
                continue
            shown = dict(zip(step.tops.ids[at].tolist(), q.tolist(), strict=True))
            better = [x for x, chance in shown.items() if chance > shown.get(token, 0)]
            if older:
                assert rank == len(better) + 1
            elif verdict not in ("rejected", "not reached"):
                assert rank == own.rank[own.row_of(place)] >= len(better) + 1
                seen["behind"] += rank > 6
    assert older or seen["behind"]
    assert seen["accepted"] and seen["rejected"] and seen["residual"]


def test_what_was_not_recorded_is_a_sentence_and_not_a_no(toy: Any) -> None:
    counts = toy.header(levels=["summary"])
    for text in ("p < 0.1", "first reject", "evicts a sink", "entropy > 1", "token in {1}"):
        with pytest.raises(ConditionError, match=r"was not recorded.*“summary”.*“decisions”"):
            Condition(text).watch_run(counts)
    Condition("accepted == 0 and verify ms > 2").watch_run(counts)
    everything = header(toy)
    everything.method["adaptive_depth"] = {"name": "all_layers"}
    everything.parts["adaptive_depth"] = Method().describe_parts()["adaptive_depth"]
    with pytest.raises(ConditionError, match="runs all layers"):
        Condition("exit layer < 3").watch_run(everything)


WRONG = [
    ("", "is empty"),
    ("accepted", "is a number, not a condition"),
    ("p <", "breaks off at its end"),
    ("p < < 1", r"character 5, '<'"),
    ("accepted = 0", "write =="),
    ("acepted == 0", r"'acepted' \(character 1\). Did you mean 'accepted'"),
    ("step == 1 and foo(p) > 1", r"'foo\(' \(character 15\)"),
    ('text < "a"', r"cannot be compared with < \(character 6\)"),
    ("accepted and 1", "and needs a condition, and accepted is a number"),
    ("not p", "not needs a condition"),
    ('p contains "x"', "contains no text"),
    ("any(accepted == 0)", "speaks of the nodes"),
    ("evicts position 1.5", "whole number"),
    ("p < 1; import os", "character 6"),
    ("__import__('os')", "character"),
    ("(lambda: 1)()", "character"),
    ("x" * (LONGEST + 1), f"at most {LONGEST}"),
    ("(" * 40 + "1 == 1" + ")" * 40, f"more than {DEEPEST} deep"),
    ("not " * 40 + "first reject", f"more than {DEEPEST} deep"),
]


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_what_cannot_be_read_is_told_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ConditionError, match=says) as refusal:
        Condition(text)
    assert len(str(refusal.value)) < 600 and "\n" not in str(refusal.value)


def test_a_figure_must_be_a_number() -> None:
    with pytest.raises(ConditionError, match="is no number"):
        Condition("first reject", number=True)


def test_every_example_is_a_condition_that_reads_its_name() -> None:
    for name, fact in FACTS.items():
        assert name in Condition(fact.example).reads, name


WORDS = [
    *FACTS,
    *FUNCTIONS,
    "and",
    "or",
    "not",
    "in",
    "contains",
    "(",
    ")",
    "{",
    "}",
    ",",
    "<",
    "==",
    "+",
    "-",
    "*",
    "/",
]
WORDS += [
    '"x"',
    "1",
    "0",
    "1e308",
    "9" * 20,
    "evicts position",
    "∈",
    "≤",
    '"\\',
    "\0",
    "\U0001d518",
    "__class__",
    ".",
    "%",
]


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)))
def test_no_text_does_more_than_be_refused_or_answered(toy: Any, text: str) -> None:
    for number in (False, True):
        try:
            watch = Condition(text, number=number).watch_run(header(toy))
        except ConditionError as refusal:
            assert str(refusal)
            continue
        for step in toy.steps("pd"):
            value = watch.see(step, {}).value
            assert value is None or isinstance(value, bool | int | float)


def test_a_step_of_many_nodes_is_refused_rather_than_waited_for(toy: Any) -> None:
    step = toy.steps("pd")[1]
    many = 400_000
    step.draft.tokens, step.draft.parents, step.draft.q = [1] * many, [-1] * many, [0.5] * many
    began = time.monotonic()
    with pytest.raises(ConditionError, match="400,001 nodes, too many"):
        Condition("p < 0 or q < 0 or p + q < 0").watch_run(header(toy)).see(step, {})
    assert time.monotonic() - began < 30
