"""Vetoed: tokens that a grammar refused at a canvas's places, and the order in which those of a pass are settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass
class Veto:
    """A token that a grammar refused at a place: with it, the canvas could no longer become a text of the grammar.

    together: false: refused given the canvas before the pass; the place has another candidate, one that fits. True: refused
              given what the pass had settled before it, the surest first; the place stays open
    """

    place: int
    token: int
    together: bool = False


def commit_order(
    taken: Sequence[int], confidence: np.ndarray, order: np.ndarray | None, explored: int | None
) -> list[int]:
    """The open places that a pass is to commit, by index, in the order in which they are settled: the one that was `explored`,
    then the others by rank."""
    rank = np.argsort(np.argsort(-confidence if order is None else order, kind="stable"), kind="stable")
    return sorted(taken, key=lambda i: -1 if i == explored else rank[i])
