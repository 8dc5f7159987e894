"""JavaScript read as far as the house rules need it: a script without its texts, and how long its functions are."""

from __future__ import annotations

import re
from typing import NamedTuple

TEXT = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
# a slash begins a pattern where no value stands before it
PATTERN = re.compile(r"(?<=[(,=:?&|!\[{};])\s*/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*")
TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*", re.DOTALL)  # up to its end, or to a `${`
CONTROL = re.compile(r"\b(?:if|for|while|switch|catch)\s*$")
PAIRS = {"(": ")", "[": "]", "{": "}"}


class Function(NamedTuple):
    """A function with a body in braces: the line where that begins, from 1, and how many it takes."""

    line: int
    lines: int


def code(text: str, literals: list[str] | None = None) -> str:
    """A script without comments, strings and patterns; what is left stands in the line where it stood. literals: takes the
    texts of its templates."""
    out: list[str] = []
    depths: list[int] = []  # of braces, in each `${}` that is open
    at = 0
    while at < len(text):
        if found := TEXT.match(text, at) or PATTERN.match(text, at):
            out.append("\n" * found[0].count("\n") + " ")
            at = found.end()
        elif text[at] == "`" or (text[at] == "}" and depths and depths[-1] == 0):
            if text[at] == "}":
                depths.pop()
            literal = TEMPLATE.match(text, at + 1)
            assert literal
            if literals is not None:
                literals.append(literal[0])
            out.append("\n" * literal[0].count("\n") + "+")
            at = literal.end() + 1
            if text[literal.end()] == "$":
                depths.append(0)
                at += 1
        else:
            if depths and text[at] in "{}":
                depths[-1] += 1 if text[at] == "{" else -1
            out.append(text[at])
            at += 1
    return "".join(out)


def functions(text: str) -> list[Function]:
    """The functions of a script whose bodies stand in braces, the inner ones first."""
    source = code(text)
    found: list[Function] = []
    waiting: list[tuple[int, bool]] = []  # brackets that are open: where, and whether a function's body begins there
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
