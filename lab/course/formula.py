"""Formula: a formula of a paper, and below it the engine code that computes it, read from the package itself."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

from decodescope.engine.core.params import ParamError

ROOT = Path(__file__).resolve().parents[2]


class Code:
    """A formula in LaTeX, and the source of the code that computes it; shown as Markdown with rendered mathematics."""

    def __init__(self, formula: str, source: str, place: str):
        self.formula = formula
        self.source = source
        self.place = place

    def _repr_markdown_(self) -> str:
        above = f"$$ {self.formula} $$\n\n" if self.formula else ""
        return f"{above}`{self.place}`\n```python\n{self.source}```\n"

    def __str__(self) -> str:
        above = f"{self.formula}\n\n" if self.formula else ""
        return f"{above}{self.place}\n{self.source}"

    __repr__ = __str__


def as_code(formula: str, function: Any, first: str = "", last: str = "") -> Code:
    """`formula` (LaTeX, may be empty) next to the source of `function`, a function, method or class of the package.

    first, last: the source is shown from the first line that contains `first` to the next one that contains `last`; whole if
    they are empty. Raises ParamError if the source is not available or contains no such line.
    """
    plain = inspect.unwrap(function) if callable(function) else function
    if not (inspect.isroutine(plain) or inspect.isclass(plain)) or not _has_source_file(plain):
        raise ParamError(
            f"{function!r} has no source here: give a function, a method or a class of the package."
        )
    lines, number = inspect.getsourcelines(plain)
    file = Path(inspect.getfile(plain))
    begin = _find_line(lines, first, 0, function)
    end = _find_line(lines, last, begin, function) if last else len(lines) - 1
    place = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name
    return Code(formula, textwrap.dedent("".join(lines[begin : end + 1])), f"{place}, line {number + begin}")


def _has_source_file(plain: Any) -> bool:
    """Whether it is defined in a Python file; Python's built-ins are not."""
    module = inspect.getmodule(plain)
    return module is not None and Path(module.__dict__.get("__file__") or "").suffix == ".py"


def _find_line(lines: list[str], text: str, begin: int, function: Any) -> int:
    """The number of the first line at `begin` or below that holds `text`."""
    for number, line in enumerate(lines[begin:], begin):
        if text in line:
            return number
    raise ParamError(f"No line of {function.__qualname__} holds {text!r}: read its source, and name one.")
