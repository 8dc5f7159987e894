"""The glossary, the page, the command line and the parts call each thing by the same name."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import fields
from pathlib import Path

from command_parsers import command_parsers

from decodescope.app.basis.arguments import option
from decodescope.app.page import layout
from decodescope.app.runs.catalogue.titles import TITLES
from decodescope.app.runs.run_service import RunChoice
from decodescope.engine.core.component import FOLDERS, OF_MODEL, registry

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
SHARED = 3  # the glossary explains a knob that at least so many parts declare


def table(title: str) -> list[list[str]]:
    """The rows of the table under a heading, without its header row and without code marks."""
    section = GLOSSARY.read_text("utf-8").split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row] for row in rows[2:]]


def run_options() -> set[str]:
    """The options of the command `run`."""
    return {word for action in command_parsers()["run"]._actions for word in action.option_strings}


def test_every_kind_of_part_has_one_name_in_glossary_page_and_command_line() -> None:
    rows, options = table("Parts of a method"), run_options()
    assert [row[1] for row in rows] == [*(x for x in TITLES if x not in OF_MODEL), *OF_MODEL]
    assert {row[1] for row in rows} == set(FOLDERS)
    for label, key, name, _ in rows:
        assert label == TITLES[key] and name == option(key) and name in options, key


def test_settings_of_a_run_are_called_alike() -> None:
    page, options = inspect.getsource(layout), run_options()
    names = {x.name for x in fields(RunChoice)}
    for label, key, name, _ in table("Settings of a run"):
        assert f'label="{label}"' in page and name in options and key in names, key


def test_knobs_that_several_parts_share_are_explained() -> None:
    count = Counter(
        knob.name for kind in FOLDERS for part in registry(kind).values() for knob in part.params()
    )
    shared = {name for name, parts in count.items() if parts >= SHARED}
    told = [row[0] for row in table("Knobs that several parts share")]
    assert len(told) == len(set(told)) and set(told) == shared, sorted(set(told) ^ shared)


def test_cells_and_sentences_are_short() -> None:
    """A table cell has at most 15 words."""
    for line in GLOSSARY.read_text("utf-8").splitlines():
        for cell in line.strip("|").split("|") if line.startswith("|") else ():
            assert len(cell.split()) <= 15, cell
