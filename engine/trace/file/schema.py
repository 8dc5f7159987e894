"""The tables of docs/trace.md: `python -m decodescope.engine.trace.file.schema --write docs/trace.md` writes them again."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..records import events, evidence

BEGIN, END = "<!-- fields: made from engine/trace/records/events.py -->\n", "<!-- end of fields -->\n"


def tables() -> str:
    """Every record and part of a record: its docstring, then its fields with type and default, as Markdown."""
    named = [*vars(events).values(), *vars(evidence).values()]
    kinds = [x for x in named if isinstance(x, type) and dataclasses.is_dataclass(x)]
    own = [x for x in kinds if x.__module__ == events.__name__]
    return "\n".join(map(_table, dict.fromkeys([*own, *kinds])))


def update(page: str) -> str:
    """`page` with new text between the two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + tables() + "\n" + END + after


def _table(kind: type) -> str:
    record = getattr(kind, "kind", None)
    lines = [f"### {kind.__name__}" + (f' - record of kind `"{record}"`' if record else ""), ""]
    lines += [*_prose(inspect.getdoc(kind) or ""), "", "| field | type | default |", "|---|---|---|"]
    hints = get_type_hints(kind)
    for one in dataclasses.fields(kind):
        lines.append(f"| `{one.name}` | {_type(hints[one.name])} | {_default(one)} |")
    return "\n".join([*lines, ""])


def _prose(text: str) -> list[str]:
    """A docstring as Markdown: `name:` at the beginning of a line or after `;` becomes an entry of a list."""
    head, _, rest = text.partition("\n\n")
    lines = [" ".join(head.split())]
    entry = re.compile(r"^(?=[a-z_]+(?:, [a-z_]+)*: )", re.MULTILINE)
    for part in entry.split(rest):
        if words := " ".join(part.split()):
            name, colon, what = words.partition(": ")
            lines += ["", f"- `{name}`: {what}"] if colon and entry.match(words) else ["", words]
    return [line for i, line in enumerate(lines) if line or not lines[i + 1].startswith("- ") or i == 1]


def _type(hint: Any) -> str:
    origin, inside = get_origin(hint), get_args(hint)
    if hint == events.Piece:
        return "piece"
    if origin in (Union, UnionType):
        rest = [one for one in inside if one is not NoneType]
        if set(rest) == set(get_args(events.Piece)):
            return "piece"
        return " or ".join(map(_type, rest)) + (" (optional)" if len(rest) < len(inside) else "")
    if origin is list:
        return f"list of {_type(inside[0])}"
    if origin is dict:
        return f"object of {_type(inside[1])}"
    if inside and origin is not None:  # a Literal
        return ", ".join(f'`"{word}"`' for word in inside)
    names = {int: "integer", float: "number", bool: "true or false", str: "text", Any: "anything"}
    if hint in names:
        return names[hint]
    return "array" if hint.__name__ == "ndarray" else f"[{hint.__name__}](#{hint.__name__.lower()})"


def _default(one: dataclasses.Field[Any]) -> str:
    if one.default is not dataclasses.MISSING:
        return "not recorded" if one.default is None else f"`{json.dumps(one.default)}`"
    if one.default_factory is not dataclasses.MISSING:
        return f"`{json.dumps(one.default_factory())}`"
    return "required"


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "--write":
        sys.exit("usage: python -m decodescope.engine.trace.file.schema --write docs/trace.md")
    Path(sys.argv[2]).write_text(update(Path(sys.argv[2]).read_text(encoding="utf-8")), encoding="utf-8")
