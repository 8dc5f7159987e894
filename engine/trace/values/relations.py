"""Relations that must hold by a declaration in a header, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Relation:
    """What must hold, such as "w == min(1, before(w) * p / q)".

    within: how far the two sides may be apart, as a share;  given: knobs with which it holds; else always
    """

    holds: str
    within: float = 1e-9
    given: dict[str, Any] = field(default_factory=dict)


def is_given(given: Mapping[str, Any], knobs: Mapping[str, Any]) -> bool:
    """True if the knobs have these values."""
    return all(knobs.get(name) == value for name, value in given.items())
