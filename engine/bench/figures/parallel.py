"""The figures of `bench parallel`: by method and task, from the results for each question."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..questions.columns import columns
from ..questions.result_file import BenchResult
from .labbench import mean

VERSION = 1  # of the JSON object
ONE = "one place a pass"  # the method that the others are compared with


@dataclass(frozen=True)
class ParallelRow:
    """The result of one method for one question.

    kind:    the task;  length: its items
    slots:   tokens of a right answer;  tokens: those that were written, the end among them
    right:   whether the answer is right;  said: the answer
    passes:  of the target;  fed: rows of all of them
    seconds: of the steps;  fault: why nothing could be measured
    """

    question: int | str
    kind: str
    method: str
    length: int
    slots: int
    tokens: int = 0
    right: bool = False
    said: str = ""
    passes: int = 0
    fed: int = 0
    seconds: float = 0.0
    fault: str = ""
    spent: Mapping[str, float | None] = field(default_factory=dict)


class ParallelResult(BenchResult[ParallelRow]):
    """The results of all methods for the questions so far.

    settings["at_once"]: question -> the chance of a right answer by a perfect model that draws all its slots at once.
    """

    kind = ParallelRow

    def record(self) -> dict[str, Any]:
        """As plain data: settings, figures by method, and the goals."""
        names = list(dict.fromkeys(row.method for row in self.rows))
        kinds = list(dict.fromkeys(row.kind for row in self.rows))
        plain = {row.question: row for row in self.rows if row.method == ONE and not row.fault}
        methods = {
            name: _figures([row for row in self.rows if row.method == name], plain, kinds) for name in names
        }
        chances = self.settings["at_once"]
        first = [row for row in self.rows if row.method == names[0]] if names else []
        return {
            "parallel": VERSION,
            "settings": self.settings,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "kinds": {kind: sum(row.kind == kind for row in first) for kind in kinds},
            "skipped": self.skipped,
            "methods": methods,
            "at_once": {
                kind: mean([chances[str(row.question)] for row in first if row.kind == kind])
                for kind in kinds
            },
            "goals": goals(methods),
            "columns": columns(self.settings, self.rows),
            "rows": [asdict(row) for row in self.rows],
        }


def _figures(
    rows: Sequence[ParallelRow], plain: dict[int | str, ParallelRow], kinds: Sequence[str]
) -> dict[str, Any]:
    """The figures of one method; a fault is no right answer, and in no other figure."""
    whole = [row for row in rows if not row.fault]
    passes, tokens = sum(row.passes for row in whole), sum(row.tokens for row in whole)
    beside = [
        plain[row.question].seconds / row.seconds for row in whole if row.question in plain and row.seconds
    ]
    return {
        "faults": [row.fault for row in rows if row.fault],
        "right": _accuracy(rows),
        "by_kind": {kind: _accuracy([row for row in rows if row.kind == kind]) for kind in kinds},
        "passes": passes,
        "passes_by_kind": {kind: mean([row.passes for row in whole if row.kind == kind]) for kind in kinds},
        "tokens_a_pass": tokens / passes if passes else None,
        "rows_a_token": sum(row.fed for row in whole) / tokens if tokens else None,
        "times": statistics.median(beside) if beside else None,
    }


def _accuracy(rows: Sequence[ParallelRow]) -> float | None:
    return mean([float(row.right) for row in rows])


JUDGED = ("copy", "reverse", "sort")
CLOSE = 0.01  # of a share


def goals(methods: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The goal of a threshold on lists with a fixed answer: at most half the passes, at most a point lost.

    A model that gets none of them right has nothing to lose, and reaches nothing.
    """
    rows: list[dict[str, Any]] = []
    one, several = methods.get(ONE), methods.get("threshold")
    for kind in JUDGED:
        if one is None or several is None or not one["by_kind"].get(kind):
            right = None if one is None else one["by_kind"].get(kind)
            rows += (
                []
                if right is None
                else [{"what": kind, "right": right, "saved": None, "lost": None, "met": None}]
            )
            continue
        before, after = one["passes_by_kind"][kind], several["passes_by_kind"][kind]
        saved = before / after if before and after else 0.0
        lost = one["by_kind"][kind] - (several["by_kind"][kind] or 0.0)
        met = saved >= 2 and lost <= CLOSE
        rows.append({"what": kind, "right": one["by_kind"][kind], "saved": saved, "lost": lost, "met": met})
    return rows
