"""Notes on the wire: the signals that the parts of a method record: declared once in the head, with values in each step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

from decodescope.engine.core.note import Kind, Note
from decodescope.engine.trace.checks.notes import iter_note_values
from decodescope.engine.trace.records.events import Header, Piece

MOST = 64  # notes of one part
WORD, SENTENCE = 64, 400  # characters of a note's words
ORDER: tuple[Kind, ...] = (
    "series",
    "clock",
    "span",
    "track",
    "set",
    "grid",
    "node",
)  # order in which the values of a step get room
TRACK = ["", "", "", "token", ""]  # the units of a bar's places
assert set(ORDER) == set(get_args(Kind))

Values = dict[str, dict[str, Any]]  # kind of part -> name -> value
Text = Callable[[int], Piece]


def encode_declarations(header: Header) -> dict[str, dict[str, dict[str, Any]]]:
    """kind of part -> name -> note, without empty fields.
    `at`: the reference of a note: a number, or the name of a note of the same part; `line`: its word. A clock counts
    seconds."""
    return {part: _encode_part_notes(notes) for part, notes in header.tells.items() if notes}


def _encode_part_notes(notes: Mapping[str, Note]) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for name, note in list(notes.items())[:MOST]:
        other = notes.get(note.line) if note.at is None and note.line != name else None
        line, at = (note.line.replace("_", " "), note.at) if other is None else (other.word, note.line)
        row = {
            "kind": note.kind,
            "word": note.word[:WORD],
            "unit": ("s" if note.kind == "clock" else note.unit)[:WORD],
            "what": note.what[:SENTENCE],
            "line": "" if at is None else line[:WORD],
            "at": at,
            "summed": note.summed or None,
            "rows": [row[:WORD] for row in note.rows] if note.kind == "track" else None,
        }
        rows[name] = {key: value for key, value in row.items() if value is not None and value != ""}
    return rows


def encode_values(header: Header, values: Values, nodes: int, text: Text) -> Values:
    """The values of a step as a page reads them, all of one kind in one shape.
    node: a list by node of the wire, null if there is no value; set: a list of members; span: a list of [from, to]; grid:
    row -> number; clock: seconds; series: as it is; track: a list of [lane, from, to, token, word]. Node numbers are one
    higher than in the trace, and a token is {"token": id, "text": its text}."""
    notes = header.tells
    return {
        part: {name: _shape_value(notes[part][name], value, nodes, text) for name, value in one.items()}
        for part, one in values.items()
    }


def fit_values(header: Header, values: Values, most: int, nodes: bool = False) -> Values:
    """As many of a step's values as fit in `most` bytes, each whole or not at all, in the ORDER of their kinds.
    Values of nodes are included only on request."""
    notes = header.tells
    rows = [(ORDER.index(notes[part][name].kind), part, name) for part, one in values.items() for name in one]
    kept: Values = {}
    for kind, part, name in sorted(rows, key=lambda row: row[0]):
        most -= (
            size := len(
                json.dumps({name: values[part][name]}, ensure_ascii=False, separators=(",", ":")).encode()
            )
        )
        if most < 0:
            most += size
        elif nodes or ORDER[kind] != "node":
            kept.setdefault(part, {})[name] = values[part][name]
    return kept


def _shape_value(note: Note, value: Any, nodes: int, text: Text) -> Any:
    if note.kind == "clock":
        return value / 1e6
    if note.kind == "set":
        units = note.unit.split(", ")
    elif note.kind == "track":
        units = TRACK
    else:
        units = [note.unit]
    spoken = text if note.kind in ("node", "set", "track") else None
    rows = [(at, _encode_value(one, units, spoken)) for at, one in iter_note_values(note, value, nodes)]
    if note.kind == "series":
        return rows[0][1]
    if note.kind == "grid":
        return {str(row)[:WORD]: one for row, one in rows if one is not None}
    root = [] if note.kind != "node" or (rows and rows[0][0] == -1) else [None]
    return [*root, *(one for _, one in rows)]


def _encode_value(x: Any, units: list[str], text: Text | None) -> Any:
    """A value with node numbers and tokens as on the wire; the last unit applies to all further places."""
    if isinstance(x, list):
        return [_encode_value(y, units[min(k, len(units) - 1) :], text) for k, y in enumerate(x)]
    if isinstance(x, str):
        return x[:SENTENCE]
    if type(x) is int and units[0] == "node":
        return x + 1
    if type(x) is int and units[0] == "token" and text is not None:
        return {"token": x, "text": text(x)}
    return x
