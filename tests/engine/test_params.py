"""Param: a value is checked once, where it is written, and the message names the way out."""

from __future__ import annotations

import pytest

from decodescope.engine.core.params import Param, ParamError, nearest, param

LENGTH = Param("length", int, 8, low=1, high=64, unit="tokens")
SHARE = Param("share", float, 0.5, low=0.0)
MODE = Param("mode", str, "full", choices=("full", "kept"))
SWITCH = Param("on", bool, False)


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
    ],
)
def test_wrong_value_is_refused_in_one_sentence(knob: Param, value: object, message: str) -> None:
    with pytest.raises(ParamError) as refusal:
        knob.check(value, "p")
    assert str(refusal.value).replace("-1:", "-1.0:") == message


def test_text_of_a_command_line_is_read() -> None:
    assert LENGTH.parse("12", "p") == 12 and LENGTH.parse("1e1", "p") == 10 and SHARE.parse("0.25", "p") == 0.25
    assert [SWITCH.parse(x, "p") for x in ("true", "No", "on", "0")] == [True, False, True, False]
    for knob, text in (LENGTH, "x"), (LENGTH, "1.5"), (LENGTH, "inf"), (LENGTH, "99"), (SWITCH, "maybe"), (MODE, ""):
        with pytest.raises(ParamError, match=r"\.$"):
            knob.parse(text, "p")


def test_nearest_word() -> None:
    assert nearest("lenght", ["length", "ngram"]) == " Did you mean 'length'?" and nearest("zzz", ["length"]) == ""
    assert param(1, low=0).metadata["param"]["low"] == 0
