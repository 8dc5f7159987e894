"""Spec-Bench's arithmetic by hand: means of rates, a ratio of means, and steps of all questions together."""

from __future__ import annotations

import statistics

import pytest

from decodescope.engine.bench.spec_bench import KINDS, kind_of, published, spec_bench
from decodescope.engine.bench.speculation_figures import SpecRow
from decodescope.engine.core.component import registry

AGAINST = {"plain": "plain", "drafted": "plain"}


def row(question: int, kind: str, method: str, tokens: int, steps: int, *seconds: float, fault: str = "") -> SpecRow:
    return SpecRow(question, kind, method, fault=fault, tokens=tokens, steps=steps, seconds=seconds)


ROWS = [
    row(1, "qa", "plain", 10, 10, 1.0, 3.0),
    row(2, "writing", "plain", 40, 40, 4.0),
    row(3, "qa", "plain", 20, 20, 1.0),
    row(1, "qa", "drafted", 10, 4, 1.0),
    row(2, "writing", "drafted", 40, 10, 1.0),
    row(3, "qa", "drafted", 0, 0, fault="it broke"),
    row(4, "code", "drafted", 500, 1, 1.0),
]


def test_a_gain_is_the_ratio_of_mean_rates_over_the_questions_that_both_have() -> None:
    drafted = spec_bench(ROWS, AGAINST)["drafted"]
    assert drafted["times"]["question answering"] == pytest.approx((10 / 1) / (10 / 2))
    assert drafted["times"]["conversation"] == pytest.approx(40 / 10) and drafted["times"]["translation"] is None
    assert drafted["overall"] == pytest.approx(statistics.fmean([10, 40]) / statistics.fmean([5, 10]))
    whole = (50 / 2) / (50 / 6)  # of times in all, which is another figure
    assert drafted["overall"] != pytest.approx(whole), "the test needs rates that differ"
    assert drafted["accepted"] == pytest.approx(50 / 14) and spec_bench(ROWS, AGAINST)["plain"]["overall"] == 1


def test_categories_of_both_files_have_their_kind() -> None:
    assert kind_of("math", theirs=True) == "conversation" and kind_of("math", theirs=False) == "mathematical reasoning"
    assert kind_of("rag", True) == kind_of("retrieval", False) == "retrieval" and kind_of("copy", False) is None
    assert spec_bench([row(1, "copy", "plain", 5, 5, 1.0)], AGAINST) == {}


def test_published_rows_are_whole_and_name_methods_that_there_are() -> None:
    book = published()
    known = {name for kind in ("drafter", "strategy") for name in registry(kind)}
    assert "fd2c1cd" in book["source"] and len(book["rows"]) == 18
    for one in book["rows"]:
        assert [*one["times"]] == [*KINDS] and one["method"] in known, one["method"]
        assert min(one["times"].values()) - 0.01 <= one["overall"] <= max(one["times"].values()) + 0.01
