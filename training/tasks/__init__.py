"""The tasks that the models learn and are measured by: one file per kind.

`KINDS[kind](r, split)` makes a task from the `random.Random` that is passed in. The splits are kept apart by construction:
what a task is about (a story, a list, the numbers of a sum, a needle) is hashed to a split, and a kind draws until it
finds content of the split it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from . import chat, code, copy, edit, expression, json, lists, math, qa, retrieval, summary, translation
from .task import SPLITS, Task, render, split_of

KINDS: dict[str, Callable[..., Task]] = {  # kind -> make(r: Random, split)
    kind.KIND: kind.make
    for kind in (chat, translation, summary, qa, math, retrieval, copy, edit, lists, json, expression, code)
}

__all__ = ["KINDS", "SPLITS", "Task", "render", "split_of"]
