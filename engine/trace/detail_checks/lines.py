"""Derive lines again: which existed, which were proposed, why one was inserted, and the text that follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..details.shapes import Detail, TallyDetail
from ..encoding.forks import method_at
from ..records.events import Header, Piece, Step
from ..records.pieces import join
from ..values.lines import (
    COME,
    SCORED,
    LineContext,
    Score,
    judge_line,
    line_gains,
    lowest_scored_lines,
    required_gain_count,
    settle_outcomes,
)
from .details import details_by_check

GAINS = ("gaining", "needed", "gain")
COLUMNS = {"text", "at", "first", "after", "stays", "outcome", *GAINS}


class _LineRound(NamedTuple):
    """first, means: of the existing lines; rows: of the proposed lines; written: tokens of one after all of them"""

    first: list[Score]
    means: list[Score]
    rows: list[dict[str, Any]]
    written: list[int]

    @property
    def inserted_line(self) -> dict[str, Any] | None:
        """The line that was inserted, if one was."""
        return next((x for x in self.rows if x["outcome"] in COME), None)


class LineValidator:
    """Follows the lines of a run, to compare its records with each other. `checked` counts the proposed lines that were
    judged again; `unread` those of them with an unknown text, so that only their scores were checked."""

    def __init__(self, header: Header, prompt: Sequence[int]):
        """prompt: the ids that were read of it."""
        self._header, self._prompt = header, prompt
        self._lines: list[list[int]] = []
        self._pieces: dict[int, Piece] = {int(x): piece for x, piece in header.pieces.items()}
        self._known, self._rounds = True, 0
        self.checked = self.unread = 0

    def lose(self) -> None:
        """Stop following: the run has gone on from another one's lines."""
        self._known = False

    def problems(self, step: Step) -> Iterator[str]:
        """Problems of the record of a step, the next one."""
        self._pieces |= {int(x): piece for x, piece in (step.pieces or {}).items()}
        details: list[Any] = details_by_check(self._header, step, "lines")
        emitted = step.emitted
        if not self._known or not (details or self._rounds):
            return
        if len(details) != 1:
            self.lose()
            yield f"it records {len(details)} rounds, and a step of a text written by lines is one"
            return
        self._rounds += 1
        wrong = self._record_problem(details[0])
        if wrong:
            self.lose()
            yield wrong
            return
        record = _read_round(details[0])
        yield from self._check_decisions(
            record, details[0].values, method_at(self._header, step.step).get("strategy", {})
        )
        taken = record.inserted_line
        if taken is not None:
            at, stays = taken["at"], taken["stays"]
            self._lines[at:] = [taken["text"], *self._lines[at : at + stays]]
        elif record.written:
            self._lines.append(record.written)
        due = [token for line in self._lines for token in line]
        if emitted and emitted != due:
            yield f"it emitted {emitted}, but the lines are {due}"

    def _record_problem(self, detail: Detail) -> str:
        """Why a record does not go on from those before it; "": it does."""
        n = len(self._lines)
        if not isinstance(detail, TallyDetail) or not detail.columns.keys() >= COLUMNS:
            return "it lacks columns of the lines that were proposed"
        first, means = detail.values.get("first_logits"), detail.values.get("means")
        if not (isinstance(first, list) and isinstance(means, list) and _are_scores([*first, *means])):
            return "its lines have scores that are no numbers"
        if not len(first) == len(means) == n:
            return f"it scores {len(first)} and {len(means)} lines, where {n} stood"
        if any(x is None or None in x for x in detail.columns["text"]):
            return "a line was proposed or written that lacks tokens"
        record = _read_round(detail)
        for x in record.rows:
            at = x["at"]
            stays = x["stays"]
            after = x["after"]
            whole = type(at) is int and type(stays) is int and 0 <= at < n and 0 <= stays <= n - at
            if not whole or (after is not None and (not _are_scores(after) or len(after) != n - at)):
                return f"a line was proposed before line {at} of {n} that cannot be there"
        if sum(x["outcome"] in COME for x in record.rows) + bool(record.written) != 1:
            return "it did not write or insert one line"
        return ""

    def _check_decisions(
        self, record: _LineRound, values: Mapping[str, Any], knobs: Mapping[str, Any]
    ) -> Iterator[str]:
        """Decisions that do not follow from scores and texts."""
        places, tau, like = (knobs.get(x) for x in ("infill_places", "tau", "max_similarity"))
        if (
            not isinstance(places, int)
            or not isinstance(tau, int | float)
            or not isinstance(like, int | float)
        ):
            return
        where = [x["at"] for x in record.rows]
        if where and where != lowest_scored_lines(record.first, places):
            yield f"lines were proposed before the lines {where}, and {lowest_scored_lines(record.first, places)} scored lowest"
        taken = record.inserted_line
        place = {"stood": len(self._lines), "place": len(self._lines) if taken is None else taken["at"]}
        if any(values.get(name) != due for name, due in place.items()):
            yield f"it names the place {values.get('place')} of {values.get('stood')} lines, and {place} follows"
        for x in record.rows:
            recorded = {name: x[name] for name in ("first", *GAINS)}
            if recorded != (due := _expected_gain(x, record, tau)):
                yield f"of the line proposed before line {x['at']} it records {recorded}, and {due} follows"
        standing = self._line_context(knobs, float(like))
        lines = [None if standing is None else self._line(x["text"], standing) for x in record.rows]
        self.checked += len(lines)
        if standing is None or None in lines:
            self.unread += len(lines)
            return
        verdicts = [
            judge_line(line or "", x["at"], standing, record.means, x["after"] or [], tau)
            for line, x in zip(lines, record.rows, strict=True)
        ]
        for x, due_verdict, outcome in zip(record.rows, verdicts, settle_outcomes(verdicts), strict=True):
            if x["outcome"] != outcome:
                yield f"the line proposed before line {x['at']} is recorded as {x['outcome']!r}, and {outcome!r} follows"
            elif x["stays"] != due_verdict.stays:
                yield (
                    f"it leaves {x['stays']} lines behind the one proposed before line {x['at']}, and {due_verdict.stays} "
                    "follow"
                )

    def _line_context(self, knobs: Mapping[str, Any], like: float) -> LineContext | None:
        """The context in which proposed lines are judged; None if it is unknown."""
        if knobs.get("syntax_check") == "none" or not self._header.pieces:
            return LineContext([tuple(x) for x in self._lines], None, like)
        head = self._text(self._prompt) if knobs.get("syntax_check") == "prompt" else ""
        lines = [self._text(x) for x in self._lines]
        return (
            None
            if head is None or None in lines
            else LineContext([x for x in lines if x is not None], head, like)
        )

    def _line(self, ids: Sequence[int], standing: LineContext) -> str | tuple[int, ...] | None:
        """A line as `standing` has them; None if it is unknown."""
        return tuple(ids) if standing.head is None else self._text(ids)

    def _text(self, ids: Sequence[int]) -> str | None:
        """The text of ids; None if one of them was not shown."""
        return join(ids, self._pieces) if all(x in self._pieces for x in ids) else None


def _read_round(detail: TallyDetail) -> _LineRound:
    """A round from its detail."""
    rows = [detail.row(k) for k in range(len(detail))]
    written = [token for x in rows if x["outcome"] == "written" for token in x["text"]]
    proposed = [x for x in rows if x["outcome"] != "written"]
    return _LineRound(detail.values["first_logits"], detail.values["means"], proposed, written)


def _are_scores(numbers: Sequence[Score]) -> bool:
    """True if these are scores: numbers, or null for a line that has none."""
    return all(x is None or math.isfinite(x) for x in numbers)


def _expected_gain(x: Mapping[str, Any], record: _LineRound, tau: float) -> dict[str, Any]:
    """The figures of a proposed line that follow from the scores."""
    due: dict[str, Any] = {"first": record.first[x["at"]], **dict.fromkeys(GAINS)}
    if x["outcome"] in SCORED and x["after"] is not None:
        gains, _ = line_gains(record.means[x["at"] :], x["after"], tau)
        due |= {"gaining": len(gains), "needed": required_gain_count(x["after"]), "gain": sum(gains)}
    return due
