"""The notes of a part: only declared notes, every declared note at least once, and each in the shape of its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import toys
from sizes import by_turns

from decodescope.engine.core.component import KINDS, build, note_declarations, registry
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.trace import Trace
from decodescope.engine.trace.checks.notes import collect_notes, declared_notes

TELLING = [(kind, name) for kind in KINDS for name, cls in registry(kind).items() if cls.tells and cls.listed]
# kinds for whose notes a step has a place
HEARD = (
    "strategy",
    "drafter",
    "schedule",
    "policy",
    "kv_compression",
    "adaptive_depth",
    "guidance",
    "sampler",
)
SILENT = [(kind, name) for kind in HEARD for name, cls in registry(kind).items() if not cls.tells]
BESIDE: dict[str, dict[str, Any]] = {  # further parts for a method, so that a part of this kind is used
    **{kind: {} for kind in KINDS},
    "schedule": {"drafter": "draft_model"},
    "strategy": {"drafter": "draft_model"},
}


LONGER = ("quest",)  # parts that act only in texts longer than these


def runs(kind: str, name: str) -> Iterator[Trace]:
    """Runs with a part in all its settings; methods that draft run twice, with a greedy text and with a sampled one."""
    for settings in toys.settings_of(kind, name):
        made = build(kind, name, settings)
        uses = made.uses if isinstance(made, Strategy) else {"drafter"}
        beside = {x: part for x, part in BESIDE[kind].items() if x in uses}
        for sampler in ("greedy", "temperature") if "drafter" in (kind, *beside) else ("greedy",):
            parts = {
                **({} if sampler == "greedy" else {"sampler": sampler}),
                **beside,
                kind: (name, settings),
            }
            yield toys.decode(toys.method(**parts), count=16).sink


def names(values: Mapping[str, Any], notes: Mapping[str, Note], before: str = "") -> Iterator[str]:
    """The names of the recorded notes; an object that is not declared itself contains further ones."""
    for name, value in values.items():
        if isinstance(value, dict) and before + name not in notes:
            yield from names(value, notes, f"{before}{name}.")
        else:
            yield before + name


@pytest.mark.parametrize(("kind", "name"), by_turns(3, TELLING))
def test_a_part_tells_what_it_declares_and_nothing_else(kind: str, name: str) -> None:
    notes, heard, works = registry(kind)[name].tells, set(), False
    for trace in runs(kind, name):
        works |= not any(text.startswith(f"{name} ") for text in trace.end.notes)
        header = trace.header
        assert header.tells == note_declarations(header.method) and set(header.tells[kind]) == set(notes)
        for step in trace.steps:
            values, shown = collect_notes(step, header.method), declared_notes(header, step)
            for part, one in values.items():
                assert set(names(one, header.tells.get(part, {}))) <= set(header.tells.get(part, {})), (
                    "it is declared"
                )
                nothing = {x for x in names(one, header.tells[part]) if x not in shown.get(part, {})}
                assert not [x for x in nothing if one.get(x) is not None], "a value has the shape of its kind"
            heard |= set(shown.get(kind, {}))
    assert heard == set(notes), "each is told in one of the settings of tests/toys.py"
    assert works, "in one of them the run does not say that the part did nothing"


@pytest.mark.parametrize(("kind", "name"), SILENT)
def test_a_part_that_declares_nothing_tells_nothing(kind: str, name: str) -> None:
    traces = [*runs(kind, name)]
    assert not any(
        kind in collect_notes(step, trace.header.method) for trace in traces for step in trace.steps
    )
    idle = all(any(text.startswith(f"{name} ") for text in trace.end.notes) for trace in traces)
    assert idle == (name in LONGER), "in one of its settings it does something"


@pytest.mark.parametrize(("kind", "name"), TELLING)
def test_a_note_is_held_against_what_is_there(kind: str, name: str) -> None:
    cls = registry(kind)[name]
    knobs = {p.name: p for p in cls.params()}
    for x, note in cls.tells.items():
        assert note.word and len(note.word) < 24 and not note.what.endswith("."), x
        assert not note.line or note.line in cls.tells or knobs[note.line].type in (int, float), x
        assert note.at is None and (not note.summed or note.kind == "node"), x
        assert not note.rows or note.kind in ("grid", "track"), x
    held = note_declarations({kind: {"name": name}})[kind]
    for note in held.values():
        drawn = note.at is not None or (note.line in held and held[note.line].kind == "series")
        assert drawn == bool(note.line), "the line of a note is a number, or another line"


def test_a_chain_of_samplers_tells_what_its_stages_tell() -> None:
    method = toys.Method.from_names(
        {"sampler": ["repetition_penalty", "mirostat"]}, {"mirostat": {"target_surprise": 2.0}}
    )
    trace = toys.decode(method, count=6).sink
    assert trace.header.tells["sampler"]["mu"].at == 2.0, "the knob that was set, not its default"
    weighed = {"cut", "mass", "spread"}
    assert all(
        set(declared_notes(trace.header, step)["sampler"]) == {"mu", "penalised"} | weighed
        for step in trace.steps
    )
    assert all(trace.header.tells["sampler"][x].rows == ["repetition_penalty", "mirostat"] for x in weighed)


FITTING = {
    "node": ([0.5, 1], [0, 0.5, True], ["a", None], [[1, 2], [2]], [0.5]),
    "series": (1, 0.5, False),
    "span": ([0, 3], [[0, 1], [4.5, 6]]),
    "set": ("length", [1, 5], [[0, 1], [0, 2, "x"]], []),
    "clock": (0.0, 12.5),
    "grid": ([1, None, 2.5], {"2": 0.5}),
}
ODD = [
    {},
    object(),
    float("nan"),
    [float("inf")],
    [[[1]]],
    [1],
    [None, None, None, None],
    [3, 0],
    -1,
    "x" * 9,
    [[1, 2, 3]],
]


@pytest.mark.parametrize("kind", FITTING)
def test_a_value_has_the_shape_of_its_kind_or_is_not_shown(kind: str) -> None:
    note = Note(kind, "x")
    assert all(note.fits(value, 2) for value in (None, *FITTING[kind]))
    fits = [value for value in ODD if note.fits(value, 2)]
    few = {
        "node": [[1], [3, 0], [[1, 2, 3]]],
        "series": [-1],
        "set": [[1], [3, 0], "x" * 9, [[1, 2, 3]]],
        "grid": [{}, [1], [None, None, None, None], [3, 0]],
    }
    assert fits == few.get(kind, [])


def test_of_a_method_from_anywhere_what_is_not_known_is_not_declared() -> None:
    assert (
        note_declarations({"drafter": {"name": "kangaroo", "min_probability": "high"}})["drafter"]["sure"].at
        is None
    )
    odd = [
        {"drafter": x}
        for x in (None, [], {"name": ["kangaroo"]}, {"name": "nobody"}, {"stages": [1, None]}, {})
    ]
    assert [note_declarations(x) for x in odd] == [{}] * len(odd)
