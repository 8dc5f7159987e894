"""Looks: what a router of two models ran beside their passes, to decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Looked = Literal["law", "entropy", "net"]


@dataclass
class Look:
    """Something that a router worked out, as far as its price goes.

    of:   "law": probabilities of all tokens, from logits; "entropy": these and the entropy of the law; "net": a trained net
    lane: whose laws or states it looked at;  rows: how many
    widths: of a net, from its input to its output, with an activation between two maps
    """

    of: Looked
    lane: str
    rows: int
    widths: list[int] = field(default_factory=list)


def looks_problems(
    looks: list[Look], due: list[tuple[Looked, str, int]], least: bool = False
) -> Iterator[str]:
    """What is wrong with the looks of a record whose router had these `due`, a phrase each. least: the rows may be more."""
    said = [(x.of, x.lane, x.rows) for x in looks]
    same = [x[:2] for x in said] == [x[:2] for x in due]
    if not (same and all(a[2] >= b[2] if least else a[2] == b[2] for a, b in zip(said, due, strict=True))):
        yield f"its router looked at {_told(said)}, and what it decided needs {_told(due)}"
    for one in looks:
        if (one.of == "net") != (len(one.widths) > 1) or any(x < 1 for x in one.widths):
            yield f"its router looked by the widths {one.widths}, which are no {one.of}'s"


def _told(looks: list[tuple[Looked, str, int]]) -> str:
    return ", ".join(f"{of} of {rows} rows by {lane}" for of, lane, rows in looks) or "nothing"
