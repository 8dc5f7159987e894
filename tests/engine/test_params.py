"""Param: a value is checked once, where it is written, and the message says how to fix it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.engine.core.component import component
from decodescope.engine.core.params import Param, ParamError, did_you_mean, param
from decodescope.engine.decoding.bases.drafter import Drafter

LENGTH = Param("length", int, 8, low=1, high=64, unit="tokens")
SHARE = Param("share", float, 0.5, low=0.0)
MODE = Param("mode", str, "full", choices=("full", "kept"))
SWITCH = Param("on", bool, False)
WIDTHS = Param("widths", tuple, (4, 2), low=1, high=64, unit="nodes", item=int, most=5)
SHARES = Param("shares", tuple, (), low=0, high=1, item=float, least=0)
NAMES = Param("names", tuple, (), item=str, least=0)
TEXT = Param("text", str, "", lines=True, most=12)
BOUND = Param("bound", float, "auto", low=0.0, high=1.0, auto=True)


def test_values_come_out_in_the_knobs_type() -> None:
    assert LENGTH.check(4.0, "x") == 4 and type(LENGTH.check(4.0, "x")) is int
    assert SHARE.check(1, "x") == 1.0 and type(SHARE.check(1, "x")) is float
    assert MODE.check("kept", "x") == "kept" and SWITCH.check(True, "x") is True


@pytest.mark.parametrize(
    ("knob", "value", "message"),
    [
        (LENGTH, 0, "p.length = 0: must lie in [1, 64] tokens."),
        (LENGTH, 65, "p.length = 65: must lie in [1, 64] tokens."),
        (LENGTH, 1.5, "p.length = 1.5: must be a whole number."),
        (LENGTH, "4", "p.length = '4': must be a whole number."),
        (LENGTH, True, "p.length = True: must be a whole number."),
        (SHARE, -1, "p.share = -1.0: must lie in [0, inf]."),
        (SHARE, float("nan"), "p.share = nan: must be a number."),
        (SHARE, None, "p.share = None: must be a number."),
        (MODE, "half", "p.mode = 'half': choose one of full, kept."),
        (MODE, ["full"], "p.mode = ['full']: choose one of full, kept."),
        (SWITCH, 1, "p.on = 1: must be true or false."),
        (WIDTHS, 4, "p.widths = 4: must be a list of whole numbers, such as 4,2."),
        (WIDTHS, (), "p.widths = () has 0 items: must have 1 to 5, such as 4,2."),
        (WIDTHS, "4,2,1,1,1,1", "p.widths = '4,2,1,1,1,1' has 6 items: must have 1 to 5, such as 4,2."),
        (WIDTHS, [4, 0], "p.widths, item 2 = 0: must lie in [1, 64] nodes."),
        (WIDTHS, "4, 2, 99", "p.widths, item 3 = 99: must lie in [1, 64] nodes."),
        (WIDTHS, "4,,2", "p.widths, item 2 = '': must be a whole number."),
        (WIDTHS, (4, True), "p.widths, item 2 = True: must be a whole number."),
        (WIDTHS, "4," * 30, f"p.widths = '{'4,' * 28}... has 31 items: must have 1 to 5, such as 4,2."),
        (SHARES, 0.5, "p.shares = 0.5: must be a list of numbers, with commas between them."),
        (NAMES, ["a b"], "p.names, item 1 = 'a b': must be one word, without a comma or blank."),
        (BOUND, "often", "p.bound = 'often': must be auto or a number."),
        (BOUND, 1.5, "p.bound = 1.5: must lie in [0, 1], or be auto."),
        (SHARE, "auto", "p.share = 'auto': must be a number."),
        (TEXT, "a" * 13, "p.text has 13 characters, above the limit of 12; shorten it."),
        (TEXT, "a\ud800", "p.text holds a character that is not UTF-8, at place 2; leave it out."),
        (TEXT, b"a", "p.text = b'a': must be text."),
    ],
)
def test_wrong_value_is_refused_in_one_sentence(knob: Param, value: object, message: str) -> None:
    with pytest.raises(ParamError) as refusal:
        knob.check(value, "p")
    assert str(refusal.value).replace("-1:", "-1.0:") == message


def test_text_of_a_command_line_is_read() -> None:
    assert (
        LENGTH.parse("12", "p") == 12 and LENGTH.parse("1e1", "p") == 10 and SHARE.parse("0.25", "p") == 0.25
    )
    assert [SWITCH.parse(x, "p") for x in ("true", "No", "on", "0")] == [True, False, True, False]
    for knob, text in (
        (LENGTH, "x"),
        (LENGTH, "1.5"),
        (LENGTH, "inf"),
        (LENGTH, "99"),
        (SWITCH, "maybe"),
        (MODE, ""),
    ):
        with pytest.raises(ParamError, match=r"\.$"):
            knob.parse(text, "p")


def test_a_list_is_typed_with_commas_or_blanks_and_is_a_tuple() -> None:
    for text in ("4,2,1", " 4, 2 , 1", "4 2 1"):
        assert WIDTHS.read(text, "p") == (4, 2, 1)
    assert (
        WIDTHS.read([4.0, 2], "p") == (4, 2) and WIDTHS.record((4, 2)) == "4,2" and SHARES.read("", "p") == ()
    )
    assert TEXT.read("a\n b, c", "p") == "a\n b, c", "a text is no list"


SIZES = st.integers(1, 64)
VALUES: list[tuple[Param, Any]] = [
    (LENGTH, SIZES),
    (SHARE, st.floats(0, allow_infinity=False)),
    (BOUND, st.one_of(st.just("auto"), st.floats(0, 1))),
    (SWITCH, st.booleans()),
    (MODE, st.sampled_from(MODE.choices)),
    (WIDTHS, st.lists(SIZES, min_size=1, max_size=5).map(tuple)),
    (SHARES, st.lists(st.floats(0, 1)).map(tuple)),
    (NAMES, st.lists(st.from_regex(r"[^\s,\ud800-\udfff]+", fullmatch=True)).map(tuple)),
    (TEXT, st.text(st.characters(exclude_categories=["Cs"]), max_size=12)),
]


@pytest.mark.parametrize(("knob", "values"), VALUES, ids=[knob.name for knob, _ in VALUES])
def test_a_value_comes_back_from_its_record_and_from_what_is_typed(knob: Param, values: Any) -> None:
    @given(values)
    def same(value: Any) -> None:
        assert knob.check(value, "p") == value
        assert knob.parse(knob.spell(value), "p") == value
        record = knob.record(value)
        assert type(record) in (int, float, bool, str)
        assert knob.read(record, "p") == value == knob.check(record, "p")

    same()


def test_nearest_word() -> None:
    assert (
        did_you_mean("lenght", ["length", "ngram"]) == " Did you mean 'length'?"
        and did_you_mean("zzz", ["length"]) == ""
    )
    assert param(1, low=0).metadata["param"]["low"] == 0


def test_a_part_that_is_typed_into_a_cell_has_its_knobs() -> None:
    """In a notebook cell, annotations are types, not texts."""
    cell = """
@component
class Mine(Drafter):
    length: int = param(6, low=1, high=32)
    shares: tuple[float, ...] = param((0.5,), low=0, high=1)
    word: str = param("a")
"""
    space: dict[str, Any] = {
        "__name__": "__main__",
        "component": component,
        "Drafter": Drafter,
        "param": param,
    }
    exec(compile(cell, "cell", "exec", dont_inherit=True), space)
    mine = space["Mine"](length=3)
    assert [(x.name, x.type, x.item) for x in mine.params()] == [
        ("length", int, None),
        ("shares", tuple, float),
        ("word", str, None),
    ]
    with pytest.raises(ParamError, match="length = 99"):
        space["Mine"](length=99)
