"""Mentions: the mentions of threads that count and name, and which mentions of several labels are kept."""

from __future__ import annotations

import re
from collections.abc import Sequence

STAND = ("only", "likelier", "first")  # outcomes of mentions that are kept
_COUNT = re.compile(r"\s*(\d{1,4})")


def parse_count(text: str) -> int | None:
    """The number that a text begins with; None: it begins with none."""
    number = _COUNT.match(text)
    return None if number is None else int(number[1])


def parse_mention(text: str) -> str:
    """The mention that a thread's text is: its first line, without blanks around it."""
    return next(iter(text.strip().splitlines()), "").strip()


def mention_outcomes(
    labels: Sequence[int], texts: Sequence[str], logp: Sequence[float]
) -> tuple[list[str], list[float], list[float | None]]:
    """The outcome of each mention; the highest log-probability (nats) that its own label gives to its text; and the highest
    that another label does, None if no other has it.

    If several labels have the same text, the label that gives it the highest keeps all of its own, of equal ones the first.
    "only": no other label has it; "likelier", "unlikelier": than another label's; "first", "later": as likely as another
    label's.
    """
    best: dict[str, dict[int, float]] = {}
    for label, text, one in zip(labels, texts, logp, strict=True):
        of = best.setdefault(text, {})
        of[label] = max(one, of.get(label, one))
    outcomes: list[str] = []
    owns: list[float] = []
    others: list[float | None] = []
    for label, text in zip(labels, texts, strict=True):
        of = best[text]
        own, other = of[label], max((x for name, x in of.items() if name != label), default=None)
        keeps = max(of, key=of.__getitem__) == label  # of equal ones the first
        if other is None:
            outcome = "only"
        elif own == other:
            outcome = "first" if keeps else "later"
        else:
            outcome = "likelier" if keeps else "unlikelier"
        outcomes.append(outcome)
        owns.append(own)
        others.append(other)
    return outcomes, owns, others
