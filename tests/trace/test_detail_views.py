"""Lanes, scales and looks that a header declares to do harm: each is refused or reported, without another exception."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from decodescope.engine.methods.routers.agreement import VOTES
from decodescope.engine.methods.routers.entropy import TURN
from decodescope.engine.trace import Trace, TraceError, check
from decodescope.engine.trace.details.consistency import validate_details, validate_forms
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    Form,
    LaneWords,
    LookForm,
    MatrixForm,
    PriceForm,
    Relation,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.looks import Look, validate_looks
from decodescope.engine.trace.details.shapes import MatrixDetail, TallyDetail
from decodescope.lab.wire.messages import messages

TOKEN = {"token": [3], "lane": ["small"], "bits": [0.5], "mean": [0.5], "outcome": ["small"]}
VALUES: dict[str, Any] = {"bar": 1.0, "turn": 2, "caught": 0}


def lanes(**changes: Any) -> TallyForm:
    assert TURN.lanes is not None
    return replace(TURN, lanes=replace(TURN.lanes, **changes))


def scale(**changes: Any) -> TallyForm:
    assert VOTES.scale is not None
    return replace(VOTES, scale=replace(VOTES.scale, **changes))


MANY = {str(i): LaneWords("M", "model", "target") for i in range(9)}
BAD: dict[str, tuple[Form, str]] = {
    "lanes by a column that is none": (lanes(column="bits"), "without a text column of lanes"),
    "tokens of a column that is none": (lanes(token="mean"), "one of tokens"),
    "no lanes": (lanes(lanes={}), "draws 0 lanes"),
    "many lanes": (lanes(lanes=MANY), "draws 9 lanes"),
    "a number that is no formula": (lanes(number="__import__('os')"), "is no formula"),
    "a mean of a sum": (lanes(mean="mean(bits + 1)"), "is no formula"),
    "drawn where nothing compares": (lanes(drawn="k"), "is no relation"),
    "texts of numbers": (scale(tokens="logp"), "which is no column of tokens"),
    "prices of no lane": (scale(prices=PriceForm("p", {})), "has the prices of 0 lanes"),
    "prices of many lanes": (
        scale(prices=PriceForm("p", dict.fromkeys(MANY, "m"))),
        "has the prices of 9 lanes",
    ),
    "a ruling in a form that is none": (scale(ruling=[Sentence("{tau:x}")]), "in the form 'x'"),
    "words where nothing compares": (scale(words=[Sentence("a", where="tau")]), "is no relation"),
    "a sentence in prices": (
        scale(prices=PriceForm("p", {"a": "b"}, part=[Sentence("{1 +}")])),
        "is no formula",
    ),
    "looks at no formula": (replace(TURN, looks=[LookForm("law", "draft", "a b")]), "is no formula"),
    "many looks": (replace(TURN, looks=[LookForm("law", "draft")] * 999), "more than 128"),
    "a count that is none": (replace(VOTES, count="asked("), "is no formula"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_declaration_is_refused(name: str) -> None:
    form, words = BAD[name]
    with pytest.raises(TraceError, match=words.replace("(", r"\(")) as caught:
        validate_forms({"bad": form})
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
    validate_forms({"good": TURN, "fine": VOTES})


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"lane": ["middle"]}, "without a lane"),
        ({"lane": [None]}, "without a lane"),
        ({"lane": [["small"]]}, "entries of the type text"),
        ({"outcome": [["small"]]}, "entries of the type text"),
        ({"lane": []}, "where 1 are due"),
        ({"bits": ["0.5"]}, "entries of the type number"),
        ({"token": [-4]}, "outside the vocabulary"),
    ],
)
def test_bad_rows_are_refused(columns: dict[str, Any], words: str) -> None:
    validate_details([TallyDetail("turn", TOKEN, VALUES)], {"turn": TURN}, 16)
    with pytest.raises(TraceError, match=words):
        validate_details([TallyDetail("turn", {**TOKEN, **columns}, VALUES)], {"turn": TURN}, 16)


def test_a_look_at_fewer_than_no_rows_is_refused() -> None:
    validate_looks([Look("law", "draft", 0)])
    with pytest.raises(TraceError, match="a look at -1 rows"):
        validate_looks([Look("law", "draft", -1)])


def told(toy: Any, form: Form, detail: Any, looks: list[Look] | None = None) -> list[str]:
    """Return the problems that `check` finds in a plain step with one detail; the page's messages can be made from it."""
    trace = Trace()
    trace.header, trace.prefill, trace.steps = toy.header(), toy.prefill(), [toy.plain_step(0, toy.prompt)]
    trace.header.details = {detail.name: form}
    trace.steps[0].details, trace.steps[0].looks = [detail], looks
    assert [x["kind"] for x in messages(trace)][:2] == ["head", "step"]
    return check(trace).problems


TURNS: dict[str, tuple[dict[str, Any], str]] = {
    "infinite": ({"caught": float("inf")}, "rows"),
    "no number": ({"bar": float("nan")}, "is due"),
    "huge": ({"turn": 1e308}, "tokens in a row"),
    "missing": ({"caught": None}, "lacks caught"),
}


@pytest.mark.parametrize("name", TURNS)
def test_numbers_of_a_turn_that_cannot_be_are_told_of(name: str, toy: Any) -> None:
    values, words = TURNS[name]
    trace_knobs = {"name": "entropy", "tau": 1.0, "large_tau_offset": 0.0, "window": 5, "min_turn_tokens": 1}
    header = toy.header()
    detail = TallyDetail("turn", TOKEN, {**VALUES, **values})
    trace = Trace()
    trace.header, trace.prefill, trace.steps = header, toy.prefill(), [toy.plain_step(0, toy.prompt)]
    trace.header.details, trace.header.method["router"] = {"turn": TURN}, trace_knobs
    trace.steps[0].details = [detail]
    assert list(messages(trace))
    assert any(words in problem for problem in check(trace).problems)
    trace.header.method["router"] = {"window": 0, "min_turn_tokens": "a", "tau": None, "large_tau_offset": []}
    assert any("lacks the knobs" in x or "lacks caught" in x for x in check(trace).problems)


def test_a_check_that_is_named_for_another_shape_or_other_columns_says_so(toy: Any) -> None:
    bare = TallyForm("t", columns=[DetailColumn("a", "number")], check="turns")
    assert any("lacks token, lane" in x for x in told(toy, bare, TallyDetail("a", {"a": [1]})))
    for name in ("blocks", "answers", "ranked answers"):
        form = replace(bare, check=name)
        assert any(f"the check {name!r}" in x for x in told(toy, form, TallyDetail("a", {"a": [1]}))), name
    matrix = MatrixForm("m", check="turns")
    assert any("is no tally" in x for x in told(toy, matrix, MatrixDetail("a")))


def test_a_list_that_lacks_a_number_has_no_mean_and_its_relation_is_told_of(toy: Any) -> None:
    columns = [DetailColumn("x", "numbers")]
    form = TallyForm(
        "t", columns=columns, relations=[Relation("mean(x) == sum(x) / count(x)")], count="count(x)"
    )
    assert not [p for p in told(toy, form, TallyDetail("a", {"x": [[1.0, 2.0]]})) if "breaks" in p]
    for entries in ([1.0, None], None, [float("inf")], []):
        assert any("breaks mean(x)" in p for p in told(toy, form, TallyDetail("a", {"x": [entries]}))), (
            entries
        )


def test_looks_are_held_against_what_their_declaration_needs(toy: Any) -> None:
    form = TallyForm(
        "t",
        columns=[DetailColumn("x", "numbers")],
        looks=[
            LookForm("law", "draft", "count(x)", each=True),
            LookForm("net", "draft", "1", given={"y": 1}),
        ],
        values=[DetailColumn("y", "number")],
    )
    rows = {"x": [[0.5, 0.5], [0.5]]}
    laws = [Look("law", "draft", 2), Look("law", "draft", 1)]
    net = Look("net", "draft", 1, [4, 2])
    assert not [p for p in told(toy, form, TallyDetail("a", rows), laws) if "looked" in p]
    assert not [p for p in told(toy, form, TallyDetail("a", rows, {"y": 1}), [*laws, net]) if "looked" in p]
    for looks, y in ((laws[:1], 0), (laws[::-1], 0), ([*laws, net], 0), (laws, 1), ([net], 0)):
        problems = told(toy, form, TallyDetail("a", rows, {"y": y}), looks)
        assert any("its router looked at" in p for p in problems), (looks, y)
