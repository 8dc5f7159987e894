"""Notes: what the parts of a method recorded in a step, by part and name, wherever the record keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from decodescope.engine.core.note import Note

from ..encoding.forks import method_at
from ..records.events import Exit, Header, Packed, Step

Told = dict[str, dict[str, Any]]  # kind of part -> name -> value


def collect_notes(step: Step, method: Mapping[str, Any]) -> Told:
    """All notes of the parts of `method` in a step, declared or not.

    A drafter's notes are those of the draft. They include a schedule's notes under "schedule", and a strategy's under its name;
    if the strategy drafts nothing, its notes are the step's `notes`. A sampler's notes are what it showed of its state.
    Guidance notes are the step's `law`. A policy's notes are in the target's cache change. The notes of KV compression come
    from the record of what was packed (`range`, `key_error`, `value_error`).

    A depth rule's notes are those of the step's last exit that is not a draft's: `depth`, or the left-out blocks `ffn`, or its
    table lookups (`known` by row, `hits`, `misses`, bytes of the `table`). They include its `tests` (layer -> confidence), and
    the last test's `sure` and `threshold`. If rows chose alone, they include the share of sub-layers that ran, `open`, and the
    `scores` of the first row by block (a0, f0, ...).
    """
    drafter = dict((step.draft.notes if step.draft is not None else None) or {})
    change = next((x for x in step.cache if x.lane == "target"), None)
    by = {
        "schedule": drafter.pop("schedule", None),
        "strategy": drafter.pop(_part_name(method.get("strategy")), step.notes),
        "drafter": drafter,
        "guidance": step.law,
        "sampler": step.sampler,
        "policy": None if change is None else change.notes,
        "kv_compression": None if change is None or change.packed is None else _packed_notes(change.packed),
        "adaptive_depth": next((_exit_notes(x) for x in reversed(step.exits or []) if not x.drafted), None),
    }
    return {kind: notes for kind, notes in by.items() if isinstance(notes, dict) and notes}


def declared_notes(header: Header, step: Step) -> Told:
    """The notes of `collect_notes` that the header declares and that have the declared shape. In steps of a fork that another
    method ran: the notes of parts that this method has too. "dropped.nodes" is in the object "dropped"."""
    if not header.tells:
        return {}
    method, nodes = method_at(header, step.step), 0 if step.draft is None else len(step.draft.tokens)
    notes: Told = {}
    for kind, values in collect_notes(step, method).items():
        if kind in header.tells and _part_name(method.get(kind)) == _part_name(header.method.get(kind)):
            held = {name: (note, note_value(values, name)) for name, note in header.tells[kind].items()}
            fitting = {name: x for name, (note, x) in held.items() if x is not None and note.fits(x, nodes)}
            if fitting:
                notes[kind] = fitting
    return notes


def note_value(values: Mapping[str, Any], name: str) -> Any:
    """The value under a name; None if there is none."""
    first, _, rest = name.partition(".")
    inner = values.get(first)
    if not rest:
        return inner
    if isinstance(inner, dict):
        return note_value(inner, rest)
    return None


def iter_note_values(note: Note, value: Any, nodes: int) -> Iterator[tuple[Any, Any]]:
    """The single values of a note's value in a step of `nodes` drafted nodes. If there are several, each comes with its node
    (-1: the root) or its row of a grid."""
    if note.kind == "node":
        yield from enumerate(value, nodes - len(value) if len(value) > nodes else 0)
    elif note.kind == "grid":
        rows = (
            value.items()
            if isinstance(value, dict)
            else zip(note.rows or range(len(value)), value, strict=False)
        )
        yield from rows
    elif note.kind in ("set", "track") or (note.kind == "span" and isinstance(value[0], list)):
        yield from ((None, one) for one in ([value] if isinstance(value, str) else value))
    else:
        yield None, value


def _part_name(part: Any) -> str:
    name = part.get("name") if isinstance(part, dict) else None
    return name if isinstance(name, str) else ""


def _packed_notes(packed: Packed) -> dict[str, Any]:
    own = {
        "range": [packed.first, packed.stop - 1],
        "key_error": packed.key_error,
        "value_error": packed.value_error,
    }
    return {**(packed.notes or {}), **own}


def _exit_notes(left: Exit) -> dict[str, Any]:
    tests = [x for x in left.tests if len(x) == 3]
    if left.scores is not None:
        first = {f"{'af'[k % 2]}{k // 2}": x for k, x in enumerate(left.scores[0] if left.scores else [])}
        return {"open": round(left.open_share, 4), "scores": first}
    deep: dict[str, Any] = {"depth": left.depth} if left.closed is None else {"ffn": left.closed}
    if left.known is not None:
        deep = {
            "known": left.known,
            "hits": sum(left.known),
            "misses": left.known.count(False),
            "table": left.table,
        }
    note: dict[str, Any] = {**deep, "tests": {f"{layer:g}": sure for layer, sure, _ in tests}}
    return {**note, "sure": tests[-1][1], "threshold": tests[-1][2]} if tests else note
