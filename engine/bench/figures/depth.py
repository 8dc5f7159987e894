"""The figures of `bench depth`: by rule, lossy and checked, from the results for each question."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..questions.columns import columns
from ..questions.result_file import BenchResult
from .labbench import BASELINE, mean

VERSION = 1  # of the JSON object
STAIRS = "skipdecode 60 %"
CHECKED = " (checked)"  # suffix of a rule used as a criterion: the layers that it left out check its guesses
CLOSE = 0.01  # of accuracy
FASTER, FASTER_STAIRS = 1.15, 1.35  # goals, in bfloat16: one exit rule, and SkipDecode


@dataclass(frozen=True)
class DepthRow:
    """The result of one method for one question, its turns together.

    score:  the mean over the turns; None where nothing is judged
    tokens: written;  equal: places at which the text has plain decoding's token;  longer: tokens of the longer of the two
    layers: rows times layers that the target ran, drafts and checks together; an attention or a feed-forward block counts as a
            half
    flops:  of all passes behind the prompt, with tests and computations on exit states;  passes: their number
    seconds: of the steps;  fault: why there is no whole answer
    """

    question: int | str
    kind: str
    method: str
    score: float | None = None
    tokens: int = 0
    equal: int = 0
    longer: int = 0
    layers: float = 0.0
    flops: float = 0.0
    passes: int = 0
    seconds: float = 0.0
    fault: str = ""
    spent: Mapping[str, float | None] = field(default_factory=dict)


class DepthResult(BenchResult[DepthRow]):
    """What all methods made of the questions so far."""

    kind = DepthRow

    def record(self) -> dict[str, Any]:
        """As plain data: settings, figures by method, and the goals."""
        names = list(dict.fromkeys(row.method for row in self.rows))
        kinds = list(dict.fromkeys(row.kind for row in self.rows))
        plain = {row.question: row for row in self.rows if row.method == BASELINE and not row.fault}
        methods = {
            name: _figures([row for row in self.rows if row.method == name], plain, kinds) for name in names
        }
        return {
            "depth": VERSION,
            "settings": self.settings,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "kinds": {
                kind: sum(row.kind == kind and row.method == BASELINE for row in self.rows) for kind in kinds
            },
            "skipped": self.skipped,
            "methods": methods,
            "goals": goals(methods),
            "columns": columns(self.settings, self.rows),
            "rows": [asdict(row) for row in self.rows],
        }


def _figures(
    rows: Sequence[DepthRow], plain: Mapping[int | str, DepthRow], kinds: Sequence[str]
) -> dict[str, Any]:
    """The figures of one method.

    A fault is a wrong answer, and counts in no other figure. In the accuracy all kinds have the same weight.
    """
    whole = [row for row in rows if not row.fault]
    scores = [
        mean([row.score for row in rows if row.kind == kind and row.score is not None]) for kind in kinds
    ]
    tokens, longer = sum(row.tokens for row in whole), sum(row.longer for row in whole)
    beside = [
        _tokens_per_second(row) / _tokens_per_second(plain[row.question])
        for row in whole
        if row.question in plain and _has_times(row)
    ]
    flops = sum(row.flops for row in whole)
    plain_flops = [plain[row.question] for row in whole if row.question in plain]
    each = sum(row.flops for row in plain_flops) / max(1, sum(row.tokens for row in plain_flops))
    return {
        "faults": [row.fault for row in rows if row.fault],
        "accuracy": mean([x for x in scores if x is not None]),
        "alike": sum(row.equal for row in whole) / longer if longer else None,
        "layers": sum(row.layers for row in whole) / tokens if tokens else None,
        "flops": flops / tokens if tokens else None,
        "share": flops / tokens / each if tokens and each else None,
        "tokens_a_pass": tokens / passes if (passes := sum(row.passes for row in whole)) else None,
        "times": statistics.median(beside) if beside else None,
    }


def _tokens_per_second(row: DepthRow) -> float:
    return row.tokens / row.seconds


def _has_times(row: DepthRow) -> bool:
    return row.tokens > 0 and row.seconds > 0


def goals(methods: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The goals: SkipDecode at 60 % of the layers, and the fastest exit rule that keeps the accuracy.

    Each has its questions, how many times as fast as plain decoding it is, what accuracy it loses, and whether that is enough.
    A goal that was not measured is left out.
    """
    due = methods.get(BASELINE, {}).get("accuracy")
    lost = {
        name: due - one["accuracy"]
        for name, one in methods.items()
        if due is not None and one["accuracy"] is not None and name != BASELINE
    }
    close = [
        name
        for name, x in lost.items()
        if x <= CLOSE and name != STAIRS and methods[name]["times"] is not None
    ]
    named = [(STAIRS, FASTER_STAIRS)] if methods.get(STAIRS, {}).get("times") is not None else []
    if close:
        named.append((max(close, key=lambda name: methods[name]["times"]), FASTER))
    return [
        {"what": name, "times": times, "due": least, "lost": lost.get(name), "met": times >= least}
        for name, least in named
        for times in [methods[name]["times"]]
    ]
