"""The figures of `bench cascade`: by router and threshold, what two models cost and how much of the text is the large one's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..questions.columns import columns
from ..questions.result_file import BenchResult
from .labbench import BASELINE, mean

VERSION = 1  # of the JSON object
SMALL = "small model alone"
CLOSE = 0.01  # of accuracy
FEWER = 0.15  # goal: of the large model's operations


@dataclass(frozen=True)
class CascadeRow:
    """The result of one method for one question, its turns together.

    score: the mean over the turns; None where nothing is judged;  tokens: of the text;  theirs: how many of them are the large
           model's
    large, small: FLOPs of all passes of each model, prompts too;  fault: why there is no whole answer
    """

    question: int | str
    kind: str
    method: str
    score: float | None = None
    tokens: int = 0
    theirs: int = 0
    large: float = 0.0
    small: float = 0.0
    fault: str = ""
    spent: Mapping[str, float | None] = field(default_factory=dict)


class CascadeResult(BenchResult[CascadeRow]):
    """What all methods made of the questions so far."""

    kind = CascadeRow

    def record(self) -> dict[str, Any]:
        """As plain data: settings, figures by method, and the goal."""
        names = list(dict.fromkeys(row.method for row in self.rows))
        kinds = list(dict.fromkeys(row.kind for row in self.rows))
        plain = {row.question: row for row in self.rows if row.method == BASELINE and not row.fault}
        methods = {
            name: _figures([row for row in self.rows if row.method == name], plain, kinds) for name in names
        }
        best = pareto_front(methods)
        return {
            "cascade": VERSION,
            "settings": self.settings,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "kinds": {
                kind: sum(row.kind == kind and row.method == BASELINE for row in self.rows) for kind in kinds
            },
            "skipped": self.skipped,
            "methods": {name: {**one, "best": name in best} for name, one in methods.items()},
            "goal": cascade_goal(methods),
            "columns": columns(self.settings, self.rows),
            "rows": [asdict(row) for row in self.rows],
        }


def _figures(
    rows: Sequence[CascadeRow], plain: Mapping[int | str, CascadeRow], kinds: Sequence[str]
) -> dict[str, Any]:
    """The figures of one method.

    A fault is a wrong answer, and counts in no other figure. In the accuracy all kinds have the same weight. The operations are
    compared with those of the same questions by the large model alone.
    """
    whole = [row for row in rows if not row.fault and row.question in plain]
    scores = [
        mean([row.score for row in rows if row.kind == kind and row.score is not None]) for kind in kinds
    ]
    due, tokens = sum(plain[row.question].large for row in whole), sum(row.tokens for row in whole)
    large, small = sum(row.large for row in whole), sum(row.small for row in whole)
    return {
        "faults": [row.fault for row in rows if row.fault],
        "accuracy": mean([x for x in scores if x is not None]),
        "flops": (large + small) / len(whole) if whole else None,
        "cost": (large + small) / due if due else None,
        "large": large / due if due else None,
        "share": sum(row.theirs for row in whole) / tokens if tokens else None,
    }


def pareto_front(methods: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The methods that no other method beats.

    A method beats another if it is as cheap, both models together, and as right, and better in one of these.
    """
    whole = {name: one for name, one in methods.items() if None not in (one["cost"], one["accuracy"])}
    known = {name: (one["cost"], -one["accuracy"]) for name, one in whole.items()}
    beaten = {a for a, x in known.items() for y in known.values() if x != y and y[0] <= x[0] and y[1] <= x[1]}
    return set(known) - beaten


def cascade_goal(methods: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Among the routed methods within a point of the large model's accuracy, the one that saves most of its operations.

    The record has what it saves, what both models cost, what it loses, and whether that is enough; None where there is none.
    """
    due = methods.get(BASELINE, {}).get("accuracy")
    if due is None:
        return None
    close = {
        name: one
        for name, one in methods.items()
        if name not in (BASELINE, SMALL)
        and None not in (one["accuracy"], one["large"])
        and due - one["accuracy"] <= CLOSE
    }
    if not close:
        return None
    name = min(close, key=lambda x: close[x]["large"])
    one, fewer = close[name], 1 - close[name]["large"]
    lost, met = due - one["accuracy"], fewer >= FEWER
    return {"what": name, "fewer": fewer, "due": FEWER, "cost": one["cost"], "lost": lost, "met": met}
