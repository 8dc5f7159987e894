"""Script: JavaScript split into code and texts, which are strings, patterns and comments."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TEXT = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
# a slash begins a pattern if no value precedes it
_PATTERN = re.compile(r"(?<=[(,=:?&|!\[{};])\s*/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*")
_TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*", re.DOTALL)  # up to its end, or to a `${`
_PLAIN = re.compile(r"[^\"'`/{}\s]+")
_SPACES = re.compile(r" (?=[,;:(){}\[\]=<>?&|*])|(?<=[,;:(){}\[\]=<>?&|*]) ")


def split_script(text: str) -> Iterator[tuple[str, str]]:
    """The script cut into ("code", "text" or "template", the source text), in order.
    Texts are strings, patterns and comments. A template is the part between backticks, or between two of its `${}`, without
    its marks."""
    depths: list[int] = []  # depth of braces, in each `${}` that is open
    begun = at = 0
    while at < len(text):
        string = _TEXT.match(text, at) or _PATTERN.match(text, at)
        if string:
            yield "code", text[begun:at]
            yield "text", string[0]
            begun = at = string.end()
        elif text[at] == "`" or (text[at] == "}" and depths and depths[-1] == 0):
            if text[at] == "}":
                depths.pop()
            literal = _TEMPLATE.match(text, at + 1)
            assert literal
            yield "code", text[begun:at]
            opens = text[literal.end()] == "$"
            yield "template", text[at : literal.end() + 1 + opens]
            depths.extend([0] * opens)
            begun = at = literal.end() + 1 + opens
        else:
            if depths and text[at] in "{}":
                depths[-1] += 1 if text[at] == "{" else -1
            plain = _PLAIN.match(text, at)
            at = plain.end() if plain else at + 1
    yield "code", text[begun:]


def strip_spaces(text: str) -> str:
    """A script without the spaces around its signs; those within texts stay, and so do its lines.
    Spaces around + and - stay, since two of them are one sign."""
    return "".join(_SPACES.sub("", part) if kind == "code" else part for kind, part in split_script(text))
