"""Spec-Bench's arithmetic by hand: means of rates, a ratio of means, and steps of all questions together."""

from __future__ import annotations

import statistics

import pytest
from bytewise import question

from decodescope.engine.bench.figures.speculation import SpecRow
from decodescope.engine.bench.labbench import QUESTIONS
from decodescope.engine.bench.questions.questions import BenchQuestion, read_questions, spread_over_kinds
from decodescope.engine.bench.questions.spec_bench import (
    TASK_OF,
    TASKS,
    is_spec_bench,
    load_published,
    spec_bench_figures,
    spec_bench_task,
)
from decodescope.engine.core.component import registry

AGAINST = {"plain": "plain", "drafted": "plain"}


def row(
    question: int, kind: str, method: str, tokens: int, steps: int, *seconds: float, fault: str = ""
) -> SpecRow:
    return SpecRow(question, kind, method, fault=fault, tokens=tokens, steps=steps, seconds=seconds)


def asked_in(kind: str, i: int) -> BenchQuestion:
    """A question as in its file: two turns for those of MT-bench, one for the others."""
    return question(f"{kind} {i}", ("x", "y") if TASK_OF[kind] == "conversation" else ("x",), kind=kind)


ROWS = [
    row(1, "qa", "plain", 10, 10, 1.0, 2.0),
    row(2, "math", "plain", 40, 40, 4.0, 4.0),
    row(3, "qa", "plain", 20, 20, 1.0, 1.0),
    row(1, "qa", "drafted", 10, 4, 1.0, 0.5),
    row(2, "math", "drafted", 40, 10, 1.0, 2.0),
    row(3, "qa", "drafted", 0, 0, fault="it broke"),
]


def test_a_gain_is_in_each_round_the_ratio_of_mean_rates_over_the_questions_that_both_have() -> None:
    drafted = spec_bench_figures(ROWS, AGAINST, theirs=True)["drafted"]
    assert drafted["times"]["question answering"] == pytest.approx(statistics.fmean([10 / 10, 20 / 5]))
    assert drafted["times"]["conversation"] == pytest.approx(statistics.fmean([40 / 10, 20 / 10]))
    assert drafted["times"]["translation"] is None
    each = [
        statistics.fmean([10, 40]) / statistics.fmean([10, 10]),
        statistics.fmean([20, 20]) / statistics.fmean([5, 10]),
    ]
    assert drafted["overall"] == pytest.approx(statistics.fmean(each))
    assert drafted["tokens_per_s"] == pytest.approx(statistics.fmean([25, 20]))
    of_means = statistics.fmean([10 / 0.75, 40 / 1.5]) / statistics.fmean([10 / 1.5, 40 / 4])
    assert drafted["overall"] != pytest.approx(of_means), "the test needs rounds that differ"
    assert (
        drafted["accepted"] == pytest.approx(50 / 14)
        and spec_bench_figures(ROWS, AGAINST, theirs=True)["plain"]["overall"] == 1
    )


def test_the_kinds_of_another_file_keep_their_names() -> None:
    drafted = spec_bench_figures(ROWS, AGAINST, theirs=False)["drafted"]
    assert list(drafted["times"]) == ["qa", "math"]
    assert (
        drafted["times"]["math"]
        == spec_bench_figures(ROWS, AGAINST, theirs=True)["drafted"]["times"]["conversation"]
    )


def test_its_thirteen_categories_are_six_tasks_and_labbench_is_not_its_file() -> None:
    assert (
        len(TASK_OF) == 13
        and len(TASKS) == 6
        and TASK_OF["math"] == "conversation" != TASK_OF["math_reasoning"]
    )
    theirs = [asked_in(kind, i) for i, kind in enumerate(TASK_OF)]
    assert is_spec_bench(theirs) and not is_spec_bench([*theirs, question(99, "x", kind="code")])
    assert not is_spec_bench([question(1, "x", kind="math")]), "MT-bench's questions have two turns"
    ours = [x for x in read_questions(QUESTIONS)[0] if x.kind in TASK_OF]
    assert {x.kind for x in ours} == {"qa", "math", "translation"} and not any(
        is_spec_bench([x]) for x in ours
    )


def test_questions_are_chosen_by_task_so_that_each_weighs_as_in_its_file() -> None:
    counts = {kind: 10 if task == "conversation" else 80 for kind, task in TASK_OF.items()}
    asked = [asked_in(kind, i) for kind, count in counts.items() for i in range(count)]
    chosen = spread_over_kinds(asked, 2, spec_bench_task)
    assert [TASK_OF[x.kind] for x in chosen] == [task for task in TASKS for _ in range(2)]


def test_published_rows_are_whole_and_name_methods_that_there_are() -> None:
    book = load_published()
    known = {name for kind in ("drafter", "strategy") for name in registry(kind)}
    assert "fd2c1cd" in book["source"] and len(book["rows"]) == 18
    for one in book["rows"]:
        assert [*one["times"]] == [*TASKS] and one["method"] in known, one["method"]
        assert min(one["times"].values()) - 0.01 <= one["overall"] <= max(one["times"].values()) + 0.01
