"""Colours: one palette, readable in light and dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from decodescope.lab.views.bundle import bundle
from decodescope.lab.words import style

CSS = (Path(style.__file__).parent.parent / "web" / "scope.css").read_text(encoding="utf-8")


@pytest.mark.parametrize(("block", "palette"), [(0, style.LIGHT), (1, style.DARK)], ids=["light", "dark"])
def test_the_style_sheet_has_the_same_colours(block: int, palette: dict[str, str]) -> None:
    body = re.findall(r"\{([^}]*--bg:[^}]*)\}", CSS)[block]
    assert dict(re.findall(r"--([\w-]+): (#\w{6});", body)) == palette


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


SHEETS = sorted(Path(style.__file__).parent.parent.joinpath("web").glob("*.css"))
TEXT = ("ink", "muted", "accept", "reject", "target-text")
MARKS = ("ink", "muted", "accept", "reject", "target", "faint", "branch", "ring", "time-3")
SYSTEM = {"CanvasText", "HighlightText", "GrayText", "ButtonText", "LinkText"}  # where the reader's own colours are forced
QUIET = ("faint",)  # of what is disabled, and of what stands in an empty box: the one is exempt, the other repeats a label


@pytest.mark.parametrize("palette", [style.LIGHT, style.DARK], ids=["light", "dark"])
def test_text_and_marks_stand_out(palette: dict[str, str]) -> None:
    for ground in ("bg", "panel"):
        for text in TEXT:
            assert contrast(palette[text], palette[ground]) >= 4.5, f"{text} on {ground}"
    for mark in MARKS:
        assert contrast(palette[mark], palette["bg"]) >= 3, mark
    for text, soft in (("ink", "accept-soft"), ("ink", "target-soft"), ("ink", "reject-soft")):
        assert contrast(palette[text], palette[soft]) >= 4.5, f"{text} on {soft}"
    for solid in ("ink", "reject"):  # pressed buttons, the badge of a record that lies
        assert contrast(palette["bg"], palette[solid]) >= 4.5, f"bg on {solid}"


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda x: x.name)
def test_text_has_no_other_colours_than_those_that_were_computed(sheet: Path) -> None:
    found = set(re.findall(r"(?<![\w-])color: ([^;}!]+)", sheet.read_text(encoding="utf-8")))
    known = {f"var(--{name})" for name in (*TEXT, *QUIET, "bg", "edge")} | {"inherit", "currentColor", "transparent"} | SYSTEM
    assert not {x.strip() for x in found} - known, "a colour of text whose contrast nobody computed"


def test_words_are_the_same_in_both_languages() -> None:
    line = re.search(r"const WORDS=\{(.*?)\};", bundle(), re.DOTALL)
    assert line and dict(re.findall(r'(\w+):"([^"]*)"', line[1])) == style.WORDS


def test_numbers_carry_units() -> None:
    assert style.size(512 * 1024) == "512 KiB" and style.size(10) == "10 B" and style.size(3 << 30) == "3.0 GiB"
    assert style.percent(0.614) == "61 %" and style.count(9_900_000) == "9.9 M"
