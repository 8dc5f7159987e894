"""Lines: a text that is written line by line, with lines inserted between those that stand; and how that is decided."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from ..values import programs

Outcome = Literal[
    "inserted", "defines", "less", "score", "parse", "unneeded", "opens", "similar", "repeated", "empty"
]
Score = float | None  # None: of a line of nothing but blanks


@dataclass
class Infill:
    """A line that was proposed, before line `at`.

    outcome: "inserted": for its score; "defines": inserted, since it imports a name that the program lacks; "less": another one
             was worth more; "score": too few lines behind it gain by it; "parse": the program would not parse; "unneeded": it
             imports what nobody lacks; "opens": it opens a block; "similar", "repeated": a line beside it, or any, is alike;
             "empty": nothing but blanks
    after:   the scores that the lines behind it would have; None: nobody asked for them
    stays:   of the lines behind it so many stay where it is inserted, the others go
    """

    at: int
    tokens: list[int]
    outcome: Outcome
    after: list[Score] | None = None
    stays: int = 0


@dataclass
class Lines:
    """One round of a text that is written line by line. A score is the mean logit that the target gave to a line's tokens.

    first:   of each line that stood, the logit of its first token; None: nothing is inserted before it
    mean:    of each line its score
    infills: the lines that were proposed
    written: tokens of the line that was written behind all; none where one was inserted
    The text is emitted by the last round: until then a line may come before any other.
    """

    first: list[Score]
    mean: list[Score]
    infills: list[Infill] = field(default_factory=list)
    written: list[int] = field(default_factory=list)

    @property
    def inserted(self) -> Infill | None:
        """The line that was inserted, if one was."""
        return next((x for x in self.infills if x.outcome in ("inserted", "defines")), None)


class Standing(NamedTuple):
    """What a proposed line is held against: the lines that stand, and the program's text before them, None: it is no program.
    A line is a text, or, of a model without a tokenizer, a tuple of ids."""

    lines: Sequence[Sequence[Hashable]]
    head: str | None
    like: float


def lowest(first: Sequence[Score], count: int) -> list[int]:
    """The lines before which a line is proposed: those `count` whose first token the target liked least, ascending."""
    there = sorted((score, i) for i, score in enumerate(first) if score is not None)
    return sorted(i for _, i in there[:count])


def refused(line: Sequence[Hashable], at: int, standing: Standing) -> Outcome | None:
    """Why `line` is not inserted before line `at`, as far as its text tells; "defines": it is; None: the scores decide."""
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
    if (names := programs.imports(line)) is not None:
        tree = programs.parsed(_program(standing))
        if tree is None or not names & programs.lacking(tree):
            return "unneeded"
        return "defines" if parses(line, at, len(lines) - at, standing) else "parse"
    return None if parses(line, at, len(lines) - at, standing) else "parse"


def parses(line: Sequence[Hashable], at: int, stays: int, standing: Standing) -> bool:
    """Whether the program parses with `line` before line `at` and `stays` of the lines behind it."""
    if standing.head is None or not isinstance(line, str):
        return True
    lines = [*standing.lines[:at], line, *standing.lines[at : at + stays]]
    return programs.parsed(_program(standing._replace(lines=lines))) is not None


def _program(standing: Standing) -> str:
    return (standing.head or "") + "".join(x for x in standing.lines if isinstance(x, str))


def raised(before: Sequence[Score], after: Sequence[Score], tau: float) -> tuple[list[float], int]:
    """By how much the lines behind an insertion gain, each tau at least, up to the first that does not; and how many lines
    these are, those of blanks among them too."""
    gains, stays = list[float](), 0
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if old is None or new is None:
            continue
        if new - old < tau:
            return gains, stays
        gains.append(new - old)
        stays = i + 1
    return gains, len(after)


def enough(gains: Sequence[float], after: Sequence[Score]) -> bool:
    """Whether so many lines gain that the insertion stands: two, or the only one, and half of all."""
    total = sum(x is not None for x in after)
    return bool(gains) and len(gains) >= min(2, total) and 2 * len(gains) >= total


class Verdict(NamedTuple):
    """What becomes of a proposed line: an Infill's outcome, "less" where it may be inserted for its score; how many of the
    lines behind it stay then; and what it is worth beside others, 0: it is not inserted."""

    outcome: Outcome
    stays: int = 0
    worth: float = 0.0


def verdict(
    line: Sequence[Hashable],
    at: int,
    standing: Standing,
    mean: Sequence[Score],
    after: Sequence[Score],
    tau: float,
) -> Verdict:
    """The verdict on `line` before line `at`. mean: scores of all lines that stand;  after: those that the lines behind it
    would have."""
    text = refused(line, at, standing)
    if text == "defines":
        return Verdict("defines", len(standing.lines) - at, float("inf"))
    if text is not None:
        return Verdict(text)
    gains, stays = raised(mean[at:], after, tau)
    if not enough(gains, after):
        return Verdict("score")
    return Verdict("less", stays, sum(gains)) if parses(line, at, stays, standing) else Verdict("parse")


def chosen(verdicts: Sequence[Verdict]) -> int | None:
    """Which of the lines is inserted, if any: the one that is worth most, the first of equals."""
    index = max(range(len(verdicts)), key=lambda i: verdicts[i].worth, default=None)
    return index if index is not None and verdicts[index].worth > 0 else None


def settled(verdicts: Sequence[Verdict]) -> list[Outcome]:
    """The outcomes, now that one line has been chosen."""
    taken = chosen(verdicts)
    return [
        x.outcome
        if not x.worth
        else "less"
        if i != taken
        else "inserted"
        if x.outcome == "less"
        else x.outcome
        for i, x in enumerate(verdicts)
    ]
