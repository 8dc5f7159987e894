"""JavaScript, read as far as the house rules need it: a script without its texts, and the lengths of its functions."""

from __future__ import annotations

import re
from typing import NamedTuple

from decodescope.lab.views.script import split_script

CONTROL = re.compile(r"\b(?:if|for|while|switch|catch)\s*$")
PAIRS = {"(": ")", "[": "]", "{": "}"}


class Function(NamedTuple):
    """A function with a body in braces: the line where the body begins, from 1, and its number of lines."""

    line: int
    lines: int


def code(text: str, literals: list[str] | None = None) -> str:
    """Return a script without comments, strings and patterns; the rest keeps its line numbers.

    literals: collects the texts of the script's templates.
    """
    out: list[str] = []
    for kind, part in split_script(text):
        if kind == "template" and literals is not None:
            literals.append(part[1:].removesuffix("${").removesuffix("`"))
        out.append(part if kind == "code" else "\n" * part.count("\n") + (" " if kind == "text" else "+"))
    return "".join(out)


def functions(text: str) -> list[Function]:
    """The functions of a script with bodies in braces, the inner ones first."""
    source = code(text)
    found: list[Function] = []
    waiting: list[
        tuple[int, bool]
    ] = []  # brackets that are open: where, and whether a function's body begins there
    head = 0  # where the last pair of round brackets was opened
    for at, char in enumerate(source):
        if char in PAIRS:
            before = source[:at].rstrip() if char == "{" else ""
            body = before.endswith("=>") or (before.endswith(")") and not CONTROL.search(source[:head]))
            waiting.append((at, body))
        elif char in PAIRS.values():
            start, body = waiting.pop()
            assert PAIRS[source[start]] == char, source[start : at + 1]
            if char == ")":
                head = start
            if body:
                lines = source.count("\n", start, at) + 1
                found.append(Function(source.count("\n", 0, start) + 1, lines))
    assert not waiting
    return found
