"""Names: a function says what it does or returns, and a class name is used once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

import pytest
from source import ROOT, modules, parsed

pytestmark = pytest.mark.xdist_group("house")  # one process parses the files


PARTICIPLE = re.compile(r"_?[a-z]+(ed|own)$")
PLAIN = {"embed", "unembed", "feed", "seed", "need", "speed"}  # nouns and verbs that end as participles do
RIDDLES = frozenset(
    [
        "told",
        "held",
        "kept",
        "left",
        "given",
        "made",
        "said",
        "chosen",
        "drawn",
        "shown",
        "known",
        "written",
        "taken",
        "seen",
        "lost",
        "found",
        "sent",
        "begun",
        "gone",
        "read_of",
        "most",
        "least",
        "best",
        "worst",
        "usual",
        "alike",
        "later",
        "aside",
        "again",
        "beside",
        "anew",
        "whose",
    ]
)


def definitions(kind: type[ast.stmt]) -> list[tuple[str, str]]:
    """(name, place) of every definition of that kind at the top of a module."""
    paths = [*modules().values(), *sorted((ROOT / "training").rglob("*.py"))]
    return [
        (node.name, f"{path.relative_to(ROOT)}:{node.lineno}")  # type: ignore[attr-defined]
        for path in paths
        for node in parsed(path).body
        if isinstance(node, kind)
    ]


def test_a_class_name_is_used_once() -> None:
    places = defaultdict(list)
    for name, place in definitions(ast.ClassDef):
        places[name].append(place)
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_no_function_is_called_by_a_participle_alone() -> None:
    """`load_head` or `ranking_accuracy`, not `loaded` or `told`."""
    names = definitions(ast.FunctionDef)
    assert len(names) > 3000, "the guard: functions were looked at"
    bare = [
        f"{place} {name}"
        for name, place in names
        if name.strip("_") in RIDDLES or (PARTICIPLE.fullmatch(name) and name.strip("_") not in PLAIN)
    ]
    assert not bare
