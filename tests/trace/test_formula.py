"""Formulas in a declaration: sums over named numbers and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from decodescope.engine.trace import UPLOADED, TraceError, open_trace
from decodescope.engine.trace.details.declarations import Sentence
from decodescope.engine.trace.details.scope import FormulaScope, format_number
from decodescope.engine.trace.records.evidence import Quantity, Relation, Telling
from decodescope.engine.trace.values.formula import (
    FormulaError,
    evaluate_formula,
    formula,
    names_in,
    relation,
    sentence,
)

NAMES = {"p": 0.25, "q": 0.5, "w": 0.75, "before(w)": 0.5, "alive": 3.0, "zero": 0.0}


def value(text: str) -> float | None:
    return evaluate_formula(formula(text), NAMES.get)


def test_a_formula_gives_the_number_that_it_says() -> None:
    assert value("min(1, before(w) * p / q)") == 0.25 and value("1 - (1 - p) ** alive") == 1 - 0.75**3
    assert value("-p + max(p, q, w)") == 0.5 and value("log(exp(q))") == pytest.approx(0.5)
    assert formula("min(1, before(w) * p)") == ["min", 1.0, ["*", ["before", "w"], "p"]]
    assert relation("w == p / q") == ("w", "==", ["/", "p", "q"])
    assert sentence("rho = {p}, of {100 * q:1}") == ("rho = ", ("p", ""), ", of ", (["*", 100.0, "q"], "1"))


def test_a_formula_counts_the_entries_of_a_list() -> None:
    scope = FormulaScope({"ids": [4, 5, 6], "none": [], "p": 0.5, "many": 12345}, {"ids": "tokens"})
    assert scope.value("count(ids) + 1") == 4 and scope.value("count(none)") == 0
    assert scope.value("count(p)") is None and scope.value("count(nobody)") is None
    assert scope.say(Sentence("{count(ids)} of {many:n}")) == "3 of 12,345"
    assert {*names_in(formula("min(1, before(w) * p / count(ids))"))} == {"w", "p", "ids"}


def test_what_is_missing_or_no_number_has_no_value() -> None:
    for text in (
        "nobody",
        "p + nobody",
        "p / zero",
        "log(zero)",
        "9.0 ** 9 ** 9 ** 9",
        "(0 - 1) ** 0.5",
        "exp(9 ** 9)",
    ):
        assert value(text) is None, text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "p +",
            "__import__('os')",
            "p.real",
            "[1]",
            "lambda: 1",
            "p if q else 1",
            "open(1)",
            "'x'",
            "min(p)",
        ),
        *(
            "before(p + 1)",
            "count(p + 1)",
            "count(p, q)",
            "p == q",
            "exp(p, q)",
            "p" * 201,
            "(" * 150,
            "f(x=1)",
            "True + 1j",
            "p @ q",
            "x := 1",
        ),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(FormulaError):
        formula(text)


@pytest.mark.parametrize("text", ["p", "p < q", "p == q == w", "p is q"])
def test_a_relation_has_one_sign_between_two_formulas(text: str) -> None:
    with pytest.raises(FormulaError):
        relation(text)


@pytest.mark.parametrize(
    "telling",
    [
        Telling(relations=[Relation("num == open('x')")]),
        Telling(numbers=[Quantity("a", "b", "p.real")]),
        Telling(card=["{p:%s%s}"], close="{import os}"),
        Telling(card=["{p:wide}"]),
    ],
)
def test_a_header_whose_formulas_cannot_be_read_is_refused(toy, tmp_path: Path, telling: Telling) -> None:
    path = toy.write(
        tmp_path / "bad.dstrace", toy.steps("p"), head=toy.header(tellings={"lossless": telling})
    )
    with pytest.raises(TraceError, match=r"tellings\.lossless: "):
        open_trace(path, UPLOADED)


def test_a_telling_is_read_as_it_was_written(toy, tmp_path: Path) -> None:
    telling = Telling(
        "f",
        path="copies",
        relations=[Relation("num >= r", 1e-6, {"form": "linear"})],
        likeliest={"next": "x"},
    )
    path = toy.write(
        tmp_path / "told.dstrace", toy.steps("pd"), head=toy.header(tellings={"lossless": telling})
    )
    assert open_trace(path, UPLOADED).header.tellings == {"lossless": telling}


def test_lists_have_a_count_a_sum_and_a_mean_and_only_by_name() -> None:
    lists = {
        "x": [1.0, 2.0, 6.0],
        "none": [],
        "gap": [1.0, None],
        "words": ["a"],
        "y": 4.0,
        "odd": [float("inf")],
    }
    scope = FormulaScope(lists, {})
    assert [scope.value(f"{name}(x)") for name in ("count", "sum", "mean")] == [3.0, 9.0, 3.0]
    assert scope.value("exp(mean(none)) + count(x) * y") == 13.0
    assert scope.value("mean(none)") == 0.0 and scope.value("count(gap)") == 2.0
    for text in ("mean(gap)", "sum(words)", "mean(y)", "count(z)", "mean(odd)"):
        assert scope.value(text) is None, text
    for text in ("mean(x + 1)", "mean(1)", "mean(x, x)", "median(x)"):
        with pytest.raises(FormulaError):
            formula(text)


@pytest.mark.parametrize(
    ("number", "form", "text"),
    [
        (0.0, "p", "0"), (0.25, "p", "0.250"), (0.0625, "p", "0.063"), (-0.05, "p", "-0.050000"), (-1.0, "p", "-1.000"),
        (0.0004, "p", "0.000400"), (2e-8, "p", "2.0e-8"), (12.5, "p", "12.500"), (1234567.0, "n", "1,234,567"),
        (3.0, "n", "3"), (float("inf"), "n", "inf"), (float("nan"), "p", "nan"), (float("inf"), "", "inf"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_a_page_writes_them(number: float, form: str, text: str) -> None:
    assert format_number(number, form) == text
