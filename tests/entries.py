"""Tables of the tests that cover every method: a method that a table does not know makes its tests fail, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def entry(table: Mapping[str, T], name: str, where: str) -> T:
    """Return the entry of a table for the method `name`; where: the table, as an author has to look for it."""
    if name not in table:
        raise LookupError(
            f"{name} has no entry in {where}: add one, or its tests would pass without having looked at it."
        )
    return table[name]
