"""Lines: which lines are inserted between those of a text that is written line by line."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher
from math import ceil
from typing import Literal, NamedTuple

from . import programs

Outcome = Literal[
    "inserted",
    "defines",
    "less",
    "also",
    "score",
    "parse",
    "unneeded",
    "opens",
    "similar",
    "repeated",
    "empty",
]
"""Of a line that was proposed.

"inserted": for its score; "defines": inserted, since it imports a name that the program lacks; "less": another one was worth
more; "also": it imports such a name too, and another one was inserted; "score": too few lines behind it gain by it; "parse":
the program would not parse; "unneeded": it imports what nobody lacks; "opens": it opens a block; "similar", "repeated": a line
beside it, or any, is alike; "empty": nothing but blanks.
"""
# mean logit that the target gave to a line's tokens; None: of a line of nothing but blanks
Score = float | None
COME = ("inserted", "defines")  # outcomes of the line that came
SCORED = ("inserted", "less", "score")  # outcomes that the scores decided


class LineContext(NamedTuple):
    """The context in which a proposed line is judged: the existing lines, and the program's text before them, None: it is not a
    program. A line is a text, or, of a model without a tokenizer, a tuple of ids."""

    lines: Sequence[Sequence[Hashable]]
    head: str | None
    like: float


def lowest_scored_lines(first: Sequence[Score], count: int) -> list[int]:
    """The lines before which a line is proposed: the `count` lines with the lowest-scored first tokens, ascending."""
    there = sorted((score, i) for i, score in enumerate(first) if score is not None)
    return sorted(i for _, i in there[:count])


def text_outcome(line: Sequence[Hashable], at: int, standing: LineContext) -> Outcome | None:
    """Why `line` is not inserted before line `at`, by its text alone; "defines": it is; None: the scores decide."""
    lines = standing.lines
    if not (line.strip() if isinstance(line, str) else line):
        return "empty"
    if line in lines:
        return "repeated"
    if any(SequenceMatcher(None, line, lines[i]).ratio() > standing.like for i in (at - 1, at) if i >= 0):
        return "similar"
    if standing.head is None or not isinstance(line, str):
        return None
    if line.lstrip().startswith(programs.OPENS):
        return "opens"
    if (names := programs.imported_names(line)) is not None:
        tree = programs.parse_program(_program_text(standing))
        if tree is None or not names & programs.unbound_names(tree):
            return "unneeded"
        return "defines" if parses_with_line(line, at, len(lines) - at, standing) else "parse"
    return None if parses_with_line(line, at, len(lines) - at, standing) else "parse"


def parses_with_line(line: Sequence[Hashable], at: int, stays: int, standing: LineContext) -> bool:
    """True if the program parses with `line` before line `at` and `stays` of the lines after it."""
    if standing.head is None or not isinstance(line, str):
        return True
    lines = [*standing.lines[:at], line, *standing.lines[at : at + stays]]
    return programs.parse_program(_program_text(standing._replace(lines=lines))) is not None


def _program_text(standing: LineContext) -> str:
    return (standing.head or "") + "".join(x for x in standing.lines if isinstance(x, str))


def line_gains(before: Sequence[Score], after: Sequence[Score], tau: float) -> tuple[list[float], int]:
    """The gains of the lines after an insertion, each at least tau, up to the first line that gains less; and the number of
    these lines, including blank ones."""
    gains, stays = list[float](), 0
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if old is None or new is None:
            continue
        if new - old < tau:
            return gains, stays
        gains.append(new - old)
        stays = i + 1
    return gains, len(after)


def required_gain_count(after: Sequence[Score]) -> int:
    """How many of the lines after an insertion have to gain by it: two, or the only one, and half of all."""
    total = sum(x is not None for x in after)
    return max(1, min(2, total), ceil(total / 2))


class LineVerdict(NamedTuple):
    """The verdict on a proposed line: an outcome, "less" if it may be inserted for its score; how many of the
    lines after it then stay; and its value compared with others, 0: it is not inserted."""

    outcome: Outcome
    stays: int = 0
    worth: float = 0.0


def judge_line(
    line: Sequence[Hashable],
    at: int,
    standing: LineContext,
    mean: Sequence[Score],
    after: Sequence[Score],
    tau: float,
) -> LineVerdict:
    """The verdict on `line` before line `at`. mean: scores of all existing lines;  after: the scores that the lines after it
    would have"""
    text = text_outcome(line, at, standing)
    if text == "defines":
        return LineVerdict("defines", len(standing.lines) - at, float("inf"))
    if text is not None:
        return LineVerdict(text)
    gains, stays = line_gains(mean[at:], after, tau)
    if len(gains) < required_gain_count(after):
        return LineVerdict("score")
    return (
        LineVerdict("less", stays, sum(gains))
        if parses_with_line(line, at, stays, standing)
        else LineVerdict("parse")
    )


def choose_line(verdicts: Sequence[LineVerdict]) -> int | None:
    """Which of the lines is inserted, if any: the one that is worth most, the first of equals."""
    index = max(range(len(verdicts)), key=lambda i: verdicts[i].worth, default=None)
    return index if index is not None and verdicts[index].worth > 0 else None


def settle_outcomes(verdicts: Sequence[LineVerdict]) -> list[Outcome]:
    """The outcomes, now that one line has been chosen."""
    taken = choose_line(verdicts)
    return [
        x.outcome if not x.worth else _final_outcome(x.outcome == "defines", i == taken)
        for i, x in enumerate(verdicts)
    ]


def _final_outcome(defines: bool, taken: bool) -> Outcome:
    """That of a line which may be inserted."""
    if defines:
        return "defines" if taken else "also"
    return "inserted" if taken else "less"
