"""Told: what an acceptance rule says of itself, as a page reads it: formulas and sentences in parts, none to parse."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace.records.evidence import Telling
from decodescope.engine.trace.values.formula import formula, relation, sentence


def told(telling: Telling) -> dict[str, Any]:
    """The telling for a card; what stands at length in a notebook stays behind. A formula is a number, a name, or a list: what
    is done, and to what. A sentence is a list of words and of [formula, form]."""
    also = telling.also
    return {
        "num": telling.num,
        "den": telling.den,
        "title": telling.title,
        "path": telling.path,
        "rest": telling.rest,
        "left": telling.left,
        "likeliest": telling.likeliest,
        "also": None if also is None else [formula(also.value), formula(also.bound)],
        "columns": {x.name: x.per for x in telling.columns},
        "relations": [[*relation(x.holds), x.within, x.given] for x in telling.relations],
        "numbers": [[x.word, _parts(x.symbol), formula(x.value)] for x in telling.numbers],
        "card": [_parts(x) for x in telling.card],
    }


def _parts(text: str) -> list[Any]:
    """A sentence in parts. A page writes a number without a form as a probability."""
    parts = sentence(text)
    return [x if isinstance(x, str) else [x[0], "" if x[1] == "p" else x[1]] for x in parts]
