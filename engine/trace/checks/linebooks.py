"""Lines derived again: which stood, which were proposed and why one was inserted, and the text that follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..details.lines import Lines, Standing, lowest, settled, verdict
from ..encoding.forks import method_at
from ..records.events import Header, Piece, Step
from ..records.pieces import join
from ..values.limits import TraceError


def consistent_lines(record: Lines | None, vocab: int) -> None:
    """What must agree inside one record: ids, lengths, numbers. Raises TraceError."""
    if record is None:
        return
    ids = [*record.written, *(token for x in record.infills for token in x.tokens)]
    if ids and not 0 <= min(ids) <= max(ids) < vocab:
        raise TraceError(f"lines holds an id outside the vocabulary of {vocab:,}")
    if len(record.first) != len(record.mean):
        raise TraceError(f"lines.mean has {len(record.mean)} entries for {len(record.first)} lines")
    scores = [*record.first, *record.mean, *(score for x in record.infills for score in x.after or ())]
    if not all(math.isfinite(score) for score in scores if score is not None):
        raise TraceError("lines holds a score that is no number")


class LineValidator:
    """Follows the lines of a run, to hold its records against each other. `checked` counts the lines that were proposed and
    judged again; `unread` those of them whose text could not be told, so that only scores were."""

    def __init__(self, header: Header, prompt: Sequence[int]):
        """prompt: the ids that were read of it."""
        self._header, self._prompt = header, prompt
        self._lines: list[list[int]] = []
        self._pieces: dict[int, Piece] = {int(x): piece for x, piece in header.pieces.items()}
        self._known, self._rounds = True, 0
        self.checked = self.unread = 0

    def lose(self) -> None:
        """From here on nothing can be told: the run has gone on from another one's lines."""
        self._known = False

    def problems(self, step: Step) -> Iterator[str]:
        """What the record of a step, the next one, says wrongly."""
        self._pieces |= {int(x): piece for x, piece in (step.pieces or {}).items()}
        record, emitted = step.lines, step.emitted
        if not self._known or (record is None and not self._rounds):
            return
        if record is None:
            self.lose()
            yield "it tells of no lines, and some stood"
            return
        self._rounds += 1
        wrong = self._misfit(record)
        if wrong:
            self.lose()
            yield wrong
            return
        yield from self._judged(record, method_at(self._header, step.step).get("strategy", {}))
        taken = record.inserted
        if taken is not None:
            self._lines[taken.at :] = [taken.tokens, *self._lines[taken.at : taken.at + taken.stays]]
        elif record.written:
            self._lines.append(record.written)
        due = [token for line in self._lines for token in line]
        if emitted and emitted != due:
            yield f"it emitted {emitted}, but the lines are {due}"

    def _misfit(self, record: Lines) -> str:
        """Why a record does not go on from those before it; "": it does."""
        n = len(self._lines)
        if not len(record.first) == len(record.mean) == n:
            return f"it scores {len(record.first)} and {len(record.mean)} lines, where {n} stood"
        for x in record.infills:
            if (
                not 0 <= x.at < n
                or not 0 <= x.stays <= n - x.at
                or (x.after is not None and len(x.after) != n - x.at)
            ):
                return f"a line was proposed before line {x.at} of {n} that cannot stand there"
        if sum(x.outcome in ("inserted", "defines") for x in record.infills) + bool(record.written) != 1:
            return "it did not write or insert one line"
        return ""

    def _judged(self, record: Lines, knobs: Mapping[str, Any]) -> Iterator[str]:
        """What is decided otherwise than scores and texts decide it."""
        places, tau, like = (knobs.get(x) for x in ("places", "tau", "like"))
        if (
            not isinstance(places, int)
            or not isinstance(tau, int | float)
            or not isinstance(like, int | float)
        ):
            return
        where = [x.at for x in record.infills]
        if where and where != lowest(record.first, places):
            yield f"lines were proposed before the lines {where}, and {lowest(record.first, places)} scored lowest"
        standing = self._standing(knobs, float(like))
        lines = [None if standing is None else self._line(x.tokens, standing) for x in record.infills]
        self.checked += len(lines)
        if standing is None or None in lines:
            self.unread += len(lines)
            return
        verdicts = [
            verdict(line or "", x.at, standing, record.mean, x.after or [], tau)
            for line, x in zip(lines, record.infills, strict=True)
        ]
        for x, due, outcome in zip(record.infills, verdicts, settled(verdicts), strict=True):
            if x.outcome != outcome:
                yield f"the line proposed before line {x.at} is told as {x.outcome!r}, and {outcome!r} follows"
            elif x.stays != due.stays:
                yield f"it leaves {x.stays} lines behind the one proposed before line {x.at}, and {due.stays} follow"

    def _standing(self, knobs: Mapping[str, Any], like: float) -> Standing | None:
        """What proposed lines are held against; None where it cannot be told."""
        if knobs.get("program") == "none" or not self._header.pieces:
            return Standing([tuple(x) for x in self._lines], None, like)
        head = self._text(self._prompt) if knobs.get("program") == "prompt" else ""
        lines = [self._text(x) for x in self._lines]
        return (
            None
            if head is None or None in lines
            else Standing([x for x in lines if x is not None], head, like)
        )

    def _line(self, ids: Sequence[int], standing: Standing) -> str | tuple[int, ...] | None:
        """A line as `standing` has them; None where it cannot be told."""
        return tuple(ids) if standing.head is None else self._text(ids)

    def _text(self, ids: Sequence[int]) -> str | None:
        """The text of ids; None where one of them was not shown."""
        return join(ids, self._pieces) if all(x in self._pieces for x in ids) else None
