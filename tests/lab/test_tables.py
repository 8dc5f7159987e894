"""Tables of a trace: one row per thing, and figures that agree with the summary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import toys

from decodescope.engine.trace import Trace, frame, open_trace
from decodescope.engine.trace.checks.step_probabilities import sampler_is_greedy
from decodescope.engine.trace.query.conditions import Condition
from decodescope.engine.trace.query.summary import summarise
from decodescope.lab.decision.decision_csv import COLUMNS, step_rows
from decodescope.lab.figures import tree

from .runs import METHODS, known, run


@pytest.mark.parametrize("name", METHODS)
def test_tables_agree_with_the_summary(name: str) -> None:
    trace = known(name)
    s, steps, decisions = summarise(trace), frame(trace, "steps"), frame(trace, "decisions")
    assert len(steps) == s.steps and steps["tokens"].sum() == s.tokens
    assert steps["drafted"].sum() == s.drafted and steps["accepted"].sum() == s.accepted
    assert len(decisions) == steps["tried"].sum()
    if s.acceptance is not None:
        assert decisions["ok"].mean() == pytest.approx(s.acceptance)
        assert len(decisions) > 10, "the test needs decisions"
    passes = frame(trace, "passes")
    assert len(passes[(passes["lane"] == "target") & (passes["phase"] == "verify")]) == s.target_passes
    cache = frame(trace, "cache")
    assert cache[cache["lane"] == "target"]["held_bytes"].iloc[-1] == s.kv_bytes_held


def test_a_decision_is_the_trial_as_it_was_recorded() -> None:
    trace = known("tree")
    for row in frame(trace, "decisions").itertuples():
        step = trace.steps[row.step]
        assert step.trials is not None and step.draft is not None
        at = step.trials.node.index(row.node)
        assert (row.p, row.r, row.q, row.ok) == (
            step.trials.p[at],
            step.trials.r[at],
            step.trials.q[at],
            step.trials.ok[at],
        )
        assert row.token == step.draft.tokens[row.node] and row.text == trace.piece(row.token)
        assert row.depth == 1 if row.parent == -1 else row.depth > 1


def test_under_a_greedy_sampler_a_decision_has_the_models_own_probability_beside_p() -> None:
    trace = run("greedy", count=16)
    table = frame(trace, "decisions")
    assert set(table["p"]) == {0.0, 1.0}, "the test needs both verdicts"
    for row in table.itertuples():
        tops = trace.steps[row.step].tops
        assert tops is not None
        at = tops.places.tolist().index(row.parent)
        assert row.p_model == tops.p[at][tops.ids[at] == row.token] and row.entropy_nats == tops.entropy[at]
        assert (row.p == 1) == (row.p_model == tops.p[at].max()), (
            "the token that is left is the likeliest one"
        )
    assert ((table["p_model"] > 0.001) & (table["p_model"] < 0.999)).sum() > len(table) / 2
    bound = float(table.query("ok")["p_model"].median())
    doubted = table.query("ok and p_model < @bound")["step"].unique().tolist()
    over = Condition(f'p_model < {bound!r} and verdict == "accepted"').watch_run(trace.header)
    assert [s.step for s in trace.steps if over.see(s, {}).value] == doubted and 0 < len(doubted) < len(
        trace.steps
    )


def test_under_a_sampler_that_draws_the_models_own_probability_is_missing() -> None:
    table = frame(known("chain"), "decisions")
    assert (
        ((table["p"] > 0) & (table["p"] < 1)).any()
        and table["p_model"].isna().all()
        and table["entropy_nats"].notna().all()
    )


def test_the_exported_rows_have_the_models_own_probability_too() -> None:
    trace = run("greedy", count=16)
    share, token, written = (COLUMNS.index(x) for x in ("p_model", "token", "emitted"))
    for step in trace.steps:
        assert step.tops is not None
        likeliest = step.tops.p[step.tops.places.tolist().index(-1)].max()
        first = next(row for row in step_rows(trace, step) if row[written])
        assert first[token] == step.emitted[0] and first[share] == likeliest < 1


def test_a_step_before_a_fork_has_the_sampler_that_it_was_made_with() -> None:
    head = run("greedy", count=4).header
    drawn = {**head.method, "sampler": {"name": "temperature", "temperature": 0.8}}
    base = {"method": head.method, "parts": head.parts, "seed": 0, "max_new_tokens": 4}
    parts = {**head.parts, "sampler": {"heat": 0.8, "cuts": False}}
    fork = replace(head, method=drawn, parts=parts, fork={"step": 2, "forced": [], "base": base})
    assert [sampler_is_greedy(fork, step) for step in (0, 1, 2, 3)] == [True, True, False, False]


def test_units_stand_in_the_names_of_times_and_sizes() -> None:
    names = {c for table in ("steps", "cache", "passes") for c in frame(known("chain"), table).columns}
    assert {"wall_us", "draft_us", "verify_us", "held_bytes", "full_bytes"} <= names


def test_what_was_not_recorded_is_missing() -> None:
    trace = run("chain", count=8, level="summary")
    assert frame(trace, "decisions").empty and frame(trace, "steps")["tried"].isna().all()


def test_a_table_of_no_steps_has_its_columns() -> None:
    empty = Trace([known("chain").header])
    assert frame(empty, "steps").empty and list(frame(empty, "steps").columns) == list(
        frame(known("chain"), "steps").columns
    )


def test_an_unknown_table_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="steps, decisions, cache, passes"):
        frame(known("chain"), "step")  # type: ignore[arg-type]


def test_a_row_for_each_value_that_was_told(tmp_path: Path) -> None:
    method = toys.method(
        drafter="draft_model", schedule=("confidence", {"max_draft_tokens": 6}), sampler="mirostat"
    )
    trace = open_trace(toys.decode(method).sink.save(tmp_path / "told.dstrace"))
    rows = frame(trace, "notes")
    sure = rows[rows["name"] == "sure"]
    assert len(sure) == sum(step.drafted for step in trace.steps) > 20
    for row in sure.itertuples():
        assert (
            row.value == trace.steps[row.step].draft.notes["schedule"]["sure"][int(row.at)]
            and row.part == "schedule"
        )
    mu = rows[rows["name"] == "mu"]
    assert mu["value"].tolist() == [step.sampler["mu"] for step in trace.steps] and set(mu["unit"]) == {
        "bits"
    }
    assert (
        set(rows["name"]) == {"threshold", "pairs", "sure", "stop", "mu"}
        and trace.header.tells["sampler"]["mu"].at == 5.0
    )


def test_the_root_s_value_comes_first_and_rows_of_a_grid_have_their_names() -> None:
    slots = frame(toys.decode(toys.method(drafter=("ppd", {"rows": "16"}))).sink, "notes")
    slots = slots[slots["name"] == "slots"]
    assert slots["at"].min() == -1 and (slots["at"] == -1).sum() == slots["step"].nunique()
    exits = toys.decode(
        toys.method(adaptive_depth=("confidence_exit", {"threshold": 0.6, "min_layers": 1}))
    ).sink
    tests = frame(exits, "notes").query("name == 'tests'")
    made = [(s.step, f"{layer:g}", sure) for s in exits.steps for layer, sure, _ in s.exits[0].tests]
    assert list(zip(tests["step"], tests["at"], tests["value"], strict=True)) == made and len(made) > 20


def test_a_passenger_is_called_one_in_table_and_figure() -> None:
    trace = toys.decode(toys.method(drafter="lookahead"), count=24).sink
    step = next(x for x in trace.steps if x.draft is not None and x.draft.passengers)
    assert step.draft is not None and step.draft.passengers
    at = COLUMNS.index("verdict")
    words = [row[at] for row in step_rows(trace, step)][: len(step.draft.tokens)]
    assert [k for k, word in enumerate(words) if word == "passenger"] == sorted(step.draft.passengers)
    names = {one.name: list(one.customdata) for one in tree.figure(trace, step.step).data if one.name}
    assert sorted(names["passenger"]) == sorted(step.draft.passengers)
