"""Colours: one palette, readable in light and dark."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from decodescope.lab.formatting import style
from decodescope.lab.views.bundle import bundle

CSS = (Path(style.__file__).parent.parent / "web" / "styles" / "scope.css").read_text(encoding="utf-8")


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


SHEETS = sorted(Path(style.__file__).parent.parent.joinpath("web", "styles").glob("*.css"))
TEXT = ("ink", "muted", "accept", "reject", "target-text")
MARKS = ("ink", "muted", "accept", "reject", "target", "faint", "branch", "ring", "time-3")
SYSTEM = {
    "CanvasText",
    "HighlightText",
    "GrayText",
    "ButtonText",
    "LinkText",
}  # when the reader's own colours are forced
# text on the shades of bits
ON_BITS = {"on-few": ("bits-1", "bits-2"), "bg": ("bits-3", "bits-4"), "on-many": ("bits-5",)}
# disabled elements are exempt; the text of an empty box repeats a label
QUIET = ("faint",)


@pytest.mark.parametrize("palette", [style.LIGHT, style.DARK], ids=["light", "dark"])
def test_text_and_marks_stand_out(palette: dict[str, str]) -> None:
    for ground in ("bg", "panel"):
        for text in TEXT:
            assert contrast(palette[text], palette[ground]) >= 4.5, f"{text} on {ground}"
    for mark in MARKS:
        assert contrast(palette[mark], palette["bg"]) >= 3, mark
    for text, soft in (("ink", "accept-soft"), ("ink", "target-soft"), ("ink", "reject-soft")):
        assert contrast(palette[text], palette[soft]) >= 4.5, f"{text} on {soft}"
    for text, shades in ON_BITS.items():
        assert all(contrast(palette[text], palette[shade]) >= 4.5 for shade in shades), text
    for solid in ("ink", "reject"):  # pressed buttons, and the badge of a record that does not re-derive
        assert contrast(palette["bg"], palette[solid]) >= 4.5, f"bg on {solid}"


SEEN = {  # linear light for eyes with all cones, and for eyes without one kind (Machado et al. 2009, severity 1)
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no long": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no middle": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.01182, 0.04294, 0.968881),
    ),
    "no short": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.3039),
    ),
}
XYZ = (
    (0.43388, 0.37622, 0.18990),
    (0.2126, 0.7152, 0.0722),
    (0.01772, 0.10946, 0.87282),
)  # white gives 1, 1, 1


def cielab(colour: str, eye: str) -> tuple[float, float, float]:
    light = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    light = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in light]
    for matrix in (SEEN[eye], XYZ):
        light = [min(1.0, max(0.0, sum(a * b for a, b in zip(row, light, strict=True)))) for row in matrix]
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in light)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("eye", SEEN)
@pytest.mark.parametrize("palette", [style.LIGHT, style.DARK], ids=["light", "dark"])
def test_shades_of_bits_are_told_apart_by_every_eye_and_grow_lighter_with_fewer(
    palette: dict[str, str], eye: str
) -> None:
    shades = [cielab(palette[f"bits-{k}"], eye) for k in range(1, 6)]
    assert min(math.dist(a, b) for i, a in enumerate(shades) for b in shades[:i]) > 14
    assert [x[0] for x in shades] == sorted((x[0] for x in shades), reverse=True), (
        "in grey they are in order too"
    )


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda x: x.name)
def test_text_has_no_other_colours_than_those_that_were_computed(sheet: Path) -> None:
    found = set(re.findall(r"(?<![\w-])color: ([^;}!]+)", sheet.read_text(encoding="utf-8")))
    known = {f"var(--{name})" for name in (*TEXT, *QUIET, *ON_BITS, "bg", "edge")} | SYSTEM
    known |= {"inherit", "currentColor", "transparent"}
    assert not {x.strip() for x in found} - known, "a colour of text whose contrast nobody computed"


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda x: x.name)
def test_no_rule_is_for_whatever_follows(sheet: Path) -> None:
    """Under such a rule all tokens of a text were styled again whenever the caret moved."""
    assert not re.findall(r"[+~]\s*\*[^{}]*\{", sheet.read_text(encoding="utf-8"))


def test_words_are_the_same_in_both_languages() -> None:
    line = re.search(r"const WORDS=\{(.*?)\};", bundle(), re.DOTALL)
    assert line and dict(re.findall(r'(\w+):"([^"]*)"', line[1])) == style.WORDS


def test_numbers_carry_units() -> None:
    assert (
        style.format_bytes(512 * 1024) == "512 KiB"
        and style.format_bytes(10) == "10 B"
        and style.format_bytes(3 << 30) == "3.0 GiB"
    )
    assert style.format_percent(0.614) == "61 %" and style.format_count(9_900_000) == "9.9 M"
