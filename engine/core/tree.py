"""Trees as lists of parents: parents[i] is the parent of node i, -1 the root; parents come before their children. No torch."""

from __future__ import annotations

from collections.abc import Iterable


def depths(parents: Iterable[int]) -> list[int]:
    """Distance of each node from the root, whose children have depth 1."""
    levels: list[int] = []
    for parent in parents:
        levels.append(1 if parent < 0 else levels[parent] + 1)
    return levels


def height(parents: Iterable[int]) -> int:
    """The greatest depth of a node; 0 for no nodes."""
    return max(depths(parents), default=0)
