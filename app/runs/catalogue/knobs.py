"""Knobs: the knob declarations of all parts, as one text that the page requests once, separately from its own."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from decodescope.engine.core.component import KINDS, Component, registry

from .parts import knob_record as described
from .presets import PRESETS

FIRST = "tree"  # the preset that the controls begin with


@dataclass(frozen=True)
class KnobDeclarations:
    """A text, its compressed form, and a mark that identifies it."""

    text: bytes
    packed: bytes
    mark: str


def knob_declarations() -> KnobDeclarations:
    """Kind -> name -> {"title", "knobs"} of all parts that have knobs and are listed, as JSON."""
    return _encode_declarations(
        tuple((kind, name, cls) for kind in KINDS for name, cls in registry(kind).items() if cls.listed)
    )


@cache
def _encode_declarations(parts: tuple[tuple[str, str, type[Component]], ...]) -> KnobDeclarations:
    """The declarations of these parts; there are more if somebody declares one."""
    kinds: dict[str, dict[str, Any]] = {}
    for kind, name, cls in parts:
        if cls.params():
            kinds.setdefault(kind, {})[name] = _part_declaration(kind, name, cls)
    text = json.dumps(kinds, separators=(",", ":")).encode()
    return KnobDeclarations(text, gzip.compress(text, mtime=0), hashlib.sha256(text).hexdigest()[:16])


def _part_declaration(kind: str, name: str, cls: type[Component]) -> dict[str, Any]:
    """The declaration of one part, without attributes that a knob does not have.
    `value` is the initial value; `title` is the heading above the knobs of one sampler among others."""
    begin = initial_values(kind, name, cls)
    knobs = [{**described(x), "step": x.step, "value": begin[x.name]} for x in cls.params()]
    bare = [{key: x for key, x in one.items() if key == "value" or not _is_empty(x)} for one in knobs]
    return {"title": cls.title if kind == "sampler" else "", "knobs": bare}


def _is_empty(x: Any) -> bool:
    """Whether a knob lacks this attribute; zero counts as a value."""
    return x is None or x is False or x in ("", [])


def initial_values(kind: str, name: str, cls: type[Component]) -> dict[str, Any]:
    """The initial values of a part's knobs: as the first preset sets them, else their defaults."""
    first = PRESETS[FIRST]
    chosen = first.names.get(kind)
    names = chosen if isinstance(chosen, list) else [chosen]
    set_so = first.settings.get(name if kind == "sampler" else kind, {}) if name in names else {}
    return {knob.name: knob.record(set_so.get(knob.name, knob.default)) for knob in cls.params()}
