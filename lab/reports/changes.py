"""Changes: two reports side by side, and what changed from the first to the second."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

from decodescope.lab.words.style import percent

from .report import Report
from .tables import FEW, Table
from .tally import Share

ENOUGH = 5  # runs of each report from which on a difference has an interval
SURE, DRAWS = 0.95, 2000  # of an interval, by the percentile bootstrap over runs
HEAD = ("first", "second", "change")


def changes(a: Report, b: Report) -> list[Table]:
    """Tables of figures of both and their difference: what a step gains, what became of the drafts, and acceptance by depth and
    by kind of token. Rows that neither report has are left out."""
    return [x for x in (_lengths(a, b), _fates(a, b), _shares("By depth", "depth", a.depths, b.depths),
                        _shares("By kind of token", "guess", a.kinds, b.kinds)) if x.rows]  # fmt: skip


def difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    """The interval of mean(b) - mean(a), runs drawn again; None where a side has fewer than ENOUGH."""
    if min(len(a), len(b)) < ENOUGH:
        return None
    chance = random.Random(0)

    def again(values: Sequence[float]) -> float:
        return statistics.fmean(chance.choices(values, k=len(values)))

    drawn = sorted(again(b) - again(a) for _ in range(DRAWS))
    cut = round((1 - SURE) / 2 * DRAWS)
    return drawn[cut], drawn[DRAWS - 1 - cut]


def _lengths(a: Report, b: Report) -> Table:
    means = [statistics.fmean(x.lengths) if x.lengths else None for x in (a, b)]
    rows = []
    if means[0] is not None and means[1] is not None:
        rows.append(("accepted length", f"{means[0]:.2f}", f"{means[1]:.2f}", f"{means[1] - means[0]:+.2f}"))
    figures = (("tokens per target pass", a.tau, b.tau), ("tokens a second", a.tokens_per_s, b.tokens_per_s))
    rows += [(word, f"{x:.2f}", f"{y:.2f}", f"{y - x:+.2f}") for word, x, y in figures]
    sure = difference(a.lengths, b.lengths)
    about = "Accepted length: drafted tokens accepted per drafting step, as a mean over the runs."
    if sure is None:
        about += f" For an interval of the change each report needs {ENOUGH} runs."
    else:
        about += f" Its change lies in {sure[0]:+.2f} to {sure[1]:+.2f} (95 %, runs drawn again)"
        about += ": not distinguishable from none." if sure[0] <= 0 <= sure[1] else "."
    if sorted(a.begins) != sorted(b.begins):
        about += " The prompts of the two differ, so a change may be theirs."
    return Table("What changed", about, ("figure", *HEAD), rows)


def _fates(a: Report, b: Report) -> Table:
    words = {"refused": "rejected at some place", "whole": "accepted to its end", "none": "no draft", "cut": "cut by the end"}
    rows = []
    for name, word in words.items():
        x, y = (report.fates[name] / report.steps if report.steps else 0.0 for report in (a, b))
        if x or y:
            rows.append((word, percent(x), percent(y), _points(x, y)))
    return Table("What became of the drafts", "Shares of the steps.", ("draft of a step", *HEAD), rows)


def _shares(title: str, first: str, a: Sequence[Share], b: Sequence[Share]) -> Table:
    rows = []
    sides = [{x.label: x for x in side if x.tested} for side in (a, b)]
    for label in dict.fromkeys([x.label for x in (*a, *b)]):
        both = [side.get(label) for side in sides]
        if any(both):
            x, y = (None if one is None else one.share for one in both)
            change = "–" if x is None or y is None else _points(x, y)
            rows.append((label, *map(_told, both), change))
    return Table(title, f"Share accepted, of how many; (few): fewer than {FEW}.", (first, *HEAD), rows)


def _told(one: Share | None) -> str:
    if one is None or one.share is None:
        return "–"
    return f"{percent(one.share)} of {one.tested}" + (" (few)" if one.tested < FEW else "")


def _points(x: float, y: float) -> str:
    return f"{100 * (y - x):+.0f} points"
