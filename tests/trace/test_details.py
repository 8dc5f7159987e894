"""Details of a hostile file: `check` names whatever is in columns and declarations, and no view fails on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from decodescope.engine.trace import Trace, TraceError, check, open_trace
from decodescope.engine.trace.details.declarations import (
    Account,
    DetailColumn,
    Outcome,
    Passage,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.lab import explain

TWINS = ["p" * 20 + "a", "p" * 20 + "b"]  # names that begin alike
FORM = TallyForm(
    title="A purse",
    value="p",
    says=[Sentence("{rows} bought")],
    row=[Sentence("{text}"), Sentence("row {k}")],
    outcomes={"dear": Outcome(False, "price", [Sentence("for {p}, {price:2}")]), "gift": Outcome(True)},
    columns=[
        DetailColumn("text", "tokens"),
        DetailColumn("p", "number"),
        DetailColumn("outcome", "text"),
        *(DetailColumn(name, "number") for name in (*TWINS, "n", "where")),
    ],
    values=[DetailColumn("price", "number")],
    account=Account(
        [Sentence("{rows} in all")],
        "price",
        [Passage(Sentence("Below {price:g}:"), [Sentence("{rows} rows")], [Sentence("“{text}”: {p}")])],
    ),
)
ROW: dict[str, list[Any]] = {"text": [[1, 4]], "p": [0.25], "outcome": ["dear"]}


@pytest.fixture
def purse(toy: SimpleNamespace, tmp_path: Path) -> Callable[..., Trace]:
    """Make a trace that is read from a file; its only step has such a detail."""

    def made(columns: dict[str, list[Any]], values: dict[str, Any] | None = None, form: Any = FORM) -> Trace:
        step = toy.plain_step(0, toy.prompt)
        step.details = [TallyDetail("purse", ROW | columns, {"price": 0.5} if values is None else values)]
        return open_trace(
            toy.write(tmp_path / "purse.dstrace", [step], head=toy.header(details={"purse": form}))
        )

    return made


def test_a_sound_one_agrees_and_is_told_at_length(purse: Callable[..., Trace]) -> None:
    trace = purse({})
    assert check(trace).ok, str(check(trace))
    said = explain(trace, 0)
    assert (said.title, said.where, said.rule, said.agrees) == ("A purse", "1 in all", "price", True)
    [line] = said.lines
    assert line.words == "Below 0.5:" and line.sums == ("1 rows", "“a␣b”: 0.25")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"n": [1.0, 2.0]}, "entries, where 2 are due"),
        ({"where": []}, "details.purse.where has 0 entries"),
        ({TWINS[0]: [1.0], TWINS[1]: [1.0, 2.0]}, "entries, where 2 are due"),
        ({"p": [math.nan]}, "lacks the numbers that decide it"),
        ({"p": [None]}, "lacks the numbers that decide it"),
        ({"p": [math.inf]}, "lacks the numbers that decide it"),
        ({"p": [{"a": 1}]}, "must hold entries of the type number"),
        ({"text": [[1, 99]]}, "outside the vocabulary"),
        ({"text": [[1, "a"]]}, "must hold entries of the type tokens"),
        ({"text": [7]}, "must have a list in each row"),
        ({"outcome": [["dear"]]}, "must hold entries of the type text"),
        ({"outcome": ["stolen"]}, "without an outcome that its declaration knows"),
        ({"p": [10**40]}, "must be a whole number within"),
    ],
)
def test_a_column_that_cannot_be_is_named(
    purse: Callable[..., Trace], columns: dict[str, list[Any]], said: str
) -> None:
    trace = purse(columns)
    assert any(said in one for one in check(trace).problems), str(check(trace))


@pytest.mark.parametrize(
    "columns",
    [{"p": [math.nan]}, {"p": [math.inf]}, {"p": [-math.inf]}, {"text": [[None, 3]]}, {"text": [None]}],
)
def test_numbers_that_are_none_and_gaps_among_tokens_are_written(
    purse: Callable[..., Trace], columns: dict[str, list[Any]]
) -> None:
    assert "A purse" in str(explain(purse(columns), 0))


@pytest.mark.parametrize(
    ("account", "said"),
    [
        (Account([Sentence("{p:zz}")]), "in the form 'zz'"),
        (Account(passages=[Passage(Sentence("a"), each=[Sentence("{import os}")])]), "is no formula"),
        (Account(passages=[Passage(Sentence("a", where="p"))]), "is no relation"),
        (Account([Sentence("a")] * 999), "has more than"),
    ],
)
def test_an_account_that_cannot_be_is_not_read(
    purse: Callable[..., Trace], account: Account, said: str
) -> None:
    with pytest.raises(TraceError, match=said):
        purse({}, form=replace(FORM, account=account))


@pytest.mark.parametrize("account", [3, [], {"passages": 3}, {"passages": [{"sums": []}]}, {"where": ["a"]}])
def test_an_account_of_another_type_is_not_read(purse: Callable[..., Trace], account: Any) -> None:
    with pytest.raises(TraceError, match="account"):
        purse({}, form=replace(FORM, account=account))
