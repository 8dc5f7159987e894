"""The chapters of the course: each has every required part, and its exercises distinguish right from wrong answers."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import EllipsisType
from typing import Any

import nbformat
import pytest

from decodescope.engine.core.params import ParamError
from decodescope.lab.course import against_paper, as_code, choose, predict
from decodescope.lab.course.exercise import RIGHT, Exercise, same_function

from .kernel import NOTEBOOKS

# the first two chapters are older and have a form of their own
CHAPTERS = [path for path in NOTEBOOKS if int(path.stem[:2]) > 2]
PARTS = ("## Exercise", "## Break it", "## What the paper measured", "## Sources")


def exercises(path: Path) -> dict[str, Exercise]:
    """The exercises of a chapter, by name: those of 03_trees.ipynb are in lab/course/exercises/trees.py."""
    module = importlib.import_module(f"decodescope.lab.course.exercises.{path.stem[3:]}")
    return {name: x for name, x in vars(module).items() if isinstance(x, Exercise)}


ALL = [pytest.param(x, id=f"{path.stem}.{name}") for path in CHAPTERS for name, x in exercises(path).items()]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_has_every_part(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    source = ["" if cell.cell_type == "markdown" else cell.source for cell in cells]
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    missing = [part for part in PARTS if not re.search(rf"^{part}$", prose, re.MULTILINE)]
    assert not missing, missing

    def first(pattern: str) -> int:
        return next((i for i, text in enumerate(source) if re.search(pattern, text, re.MULTILINE)), -1)

    asked, shown = first(r"= (predict|choose)\("), first(r"\.compare_with\(")
    assert 0 <= asked < shown, "the guess is asked first and then shown beside what came"
    assert shown > asked + 1, "something runs between guess and answer"
    assert first(r"\bas_code\(") > 0, "no formula stands beside its source"
    assert first(r"\bagainst_paper\(") > 0
    assert re.search(r"arXiv:\d{4}\.\d{4,5}", prose), "no paper is named"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_what_the_prose_claims_is_asserted(path: Path) -> None:
    """The assertions are in folded cells: readers may open them, and CI runs them."""
    claims = [
        cell for cell in nbformat.read(path, as_version=4).cells if "claims" in cell.metadata.get("tags", [])
    ]
    assert claims
    for cell in claims:
        assert cell.metadata["jupyter"]["source_hidden"]
        tree = ast.parse(cell.source)
        assert tree.body and all(isinstance(n, ast.Assert) for n in tree.body), (
            "such a cell asserts, and no more"
        )
        assert not [
            n for n in ast.walk(tree) if isinstance(n, ast.Assert) and isinstance(n.test, ast.Constant)
        ]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_sets_its_exercises(path: Path) -> None:
    """Every exercise is set with three dots instead of the answer."""
    assert exercises(path)
    trees = [
        ast.parse(cell.source) for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
    ]
    calls = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Call)]
    asked = {
        n.func.value.id: n.args[0]
        for n in calls
        if isinstance(n.func, ast.Attribute) and n.func.attr == "check" and isinstance(n.func.value, ast.Name)
    }
    assert set(asked) == set(exercises(path))
    for name, answer in asked.items():
        assert isinstance(answer, ast.Constant) and isinstance(answer.value, EllipsisType), name


@pytest.mark.parametrize("exercise", ALL)
def test_exercise_knows_right_from_wrong(exercise: Exercise) -> None:
    right = exercise.check(exercise.right)
    assert right and str(right).startswith(f"✓ {RIGHT}")
    hints = [hint for _, hint in exercise.wrong]
    assert len(set(hints)) == len(hints) >= 3
    for answer, hint in exercise.wrong:
        said = exercise.check(answer)
        assert not said and hint in str(said), answer
    for rubbish in ("no answer", None, -12345.6, [], object(), lambda: None):
        said = exercise.check(rubbish)
        assert not said and not any(hint in str(said) for hint in hints), rubbish
    assert not exercise.check() and exercise.question in str(exercise.check())


def exercise(**told: Any) -> Exercise:
    return Exercise("How many?", 4, [(3, "count the root"), (5, "one less"), (2, "look")], **told)


def test_an_answer_is_compared_as_what_it_is() -> None:
    assert (
        exercise().check(4.0)
        and exercise().check(4.03)
        and not exercise().check(4.05)
        and not exercise().check("4")
    )
    assert not Exercise("?", 1, [(x, f"{x}") for x in (2, 3, 4)]).check(True)
    words = Exercise("?", "the draft", [(x, x) for x in ("a", "b", "c")])
    assert words.check(" The draft") and not words.check("draft")
    lists = Exercise("?", [1, 2], [(x, str(x)) for x in ([2, 1], [1], [1, 2, 3])])
    assert lists.check((1, 2)) and not lists.check([2, 1])
    functions = Exercise(
        "?",
        lambda p, q: min(1, p / q),
        [(lambda p, q: p / q, "above 1"), (lambda p, q: q / p, "turned round"), (lambda p, q: p, "and q?")],
        same=same_function((0.5, 0.2), (0.1, 0.4)),
    )
    assert functions.check(lambda p, q: p / q if p < q else 1.0)
    assert "above 1" in str(functions.check(lambda p, q: p / q)) and not functions.check(lambda p: p)


def test_an_exercise_without_three_mistakes_is_refused() -> None:
    with pytest.raises(ValueError, match="three at least"):
        Exercise("?", 1, [(2, "a"), (3, "b")])


def test_a_guess_stands_beside_what_came() -> None:
    asked = predict("How many?", 1, 5, unit="tokens")
    assert asked.guess is None and "no guess" in str(asked.compare_with(2.5))
    asked.guess = 5.0
    table = asked.compare_with(2.5, paper=3.0, source="Leviathan et al. 2023")
    assert [row[1] for row in table.rows] == ["5", "2.5", "3"]
    assert "factor of 2: you guessed too much" in str(table) and "Leviathan" in table._repr_html_()
    asked._asked.value = 2.4  # simulates a reader's input
    assert asked.guess == 2.4 and "Within ten percent" in str(asked.compare_with(2.5))
    which = choose("Which?", ["a", "b"])
    assert which.guess is None
    which.guess = "a"
    assert "As you said" in str(which.compare_with("a")) and "Not what you said" in str(
        which.compare_with("b")
    )
    with pytest.raises(ParamError, match="low below high"):
        predict("?", 2, 2)
    with pytest.raises(ParamError, match="two options"):
        choose("?", ["a"])


def test_a_formula_stands_beside_the_package_s_own_source() -> None:
    shown = as_code(r"\min(1, p/q)", Exercise.check, "if self._is_same", "return CheckResult(True")
    assert shown.source.startswith("if self._is_same(answer, self.right):") and shown.source.count("\n") == 2
    assert shown.place.startswith("lab/course/exercise.py, line ") and "$$" in shown._repr_markdown_()
    line = int(shown.place.split()[-1])
    file = Path(importlib.import_module("decodescope.lab.course.exercise").__file__ or "").read_text(
        encoding="utf-8"
    )
    assert file.splitlines()[line - 1].strip() == shown.source.splitlines()[0]
    for nothing in (len, int, 3):
        with pytest.raises(ParamError, match="no source"):
            as_code("", nothing)
    with pytest.raises(ParamError, match="No line"):
        as_code("", Exercise.check, "no such line")


def test_tables_show_text_as_text() -> None:
    table = against_paper("<Table 1>", [("tau & more", 2.41, "<b>")], "tiny models.")
    assert "&lt;b&gt;" in table._repr_html_() and "<b>" not in table._repr_html_()
    assert "Why they differ: tiny models." in str(table) and "2.41" in str(table)
