"""Spec-Bench's own arithmetic by its six kinds, so that a figure here can stand beside a published one.

Source: Xia et al. 2024, arXiv:2401.07851; hemingkx/Spec-Bench, evaluation/speed.py. Of each question tokens a second of the
whole call, prompt included; of a method the mean of these rates over the questions; times plain is the ratio of two such means,
not of times in all; mean accepted tokens is the mean over all steps of all questions, the target's own token included.

`bench speculation` itself compares question by question and takes medians, of the steps alone: the two agree where questions
are alike. A call's time is the mean of its rounds here, as theirs is of three runs.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

PUBLISHED = Path(__file__).resolve().parents[2] / "assets" / "bench" / "spec_bench.json"
KINDS: dict[str, tuple[str, ...]] = {  # theirs -> categories of their file, and behind them LabBench's of the same sort
    "conversation": (
        *("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"),
        "chat",
    ),
    "translation": ("translation",),
    "summarization": ("summarization", "summary"),
    "question answering": ("qa",),
    "mathematical reasoning": ("math_reasoning",),
    "retrieval": ("rag", "retrieval"),
}
SUMS = "math"  # a category of theirs within conversation; in LabBench it is the kind of mathematical questions
OURS = "chat"  # what tells LabBench's questions from theirs


class Timed(Protocol):
    """What one method made of one question."""

    @property
    def question(self) -> int | str:
        """Its id."""
        ...

    @property
    def kind(self) -> str:
        """What its file calls questions like it."""
        ...

    @property
    def method(self) -> str:
        """The method's name."""
        ...

    @property
    def fault(self) -> str:
        """Why there is no whole answer."""
        ...

    @property
    def tokens(self) -> int:
        """Written."""
        ...

    @property
    def steps(self) -> int:
        """In which they were written."""
        ...

    @property
    def seconds(self) -> Sequence[float]:
        """Of each whole call."""
        ...


def kind_of(category: str, theirs: bool) -> str | None:
    """Spec-Bench's kind of a category, of its own file or of LabBench's; None: it has none."""
    if category == SUMS and not theirs:
        return "mathematical reasoning"
    return next((kind for kind, categories in KINDS.items() if category in categories), None)


def spec_bench(rows: Sequence[Timed], against: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Method -> its figures: `times` by kind and `overall` over plain decoding, `tokens_per_s`, `accepted`; None where there is
    nothing. against: method -> the plain decoding that it is compared with."""
    theirs = not any(row.kind == OURS for row in rows)
    asked = [row for row in rows if kind_of(row.kind, theirs) is not None and not row.fault and row.seconds]
    figures: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(row.method for row in asked):
        mine = [row for row in asked if row.method == name]
        plain = [row for row in asked if row.method == against.get(name)]
        of = {
            kind: times(*([x for x in each if kind_of(x.kind, theirs) == kind] for each in (mine, plain))) for kind in KINDS
        }
        steps = sum(row.steps for row in mine)
        figures[name] = {
            "times": of,
            "overall": times(mine, plain),
            "tokens_per_s": rate(mine),
            "accepted": sum(row.tokens for row in mine) / steps if steps else None,
        }
    return figures


def rate(rows: Iterable[Timed]) -> float | None:
    """The mean over questions of tokens a second."""
    rates = [row.tokens / statistics.fmean(row.seconds) for row in rows]
    return statistics.fmean(rates) if rates else None


def times(mine: Sequence[Timed], plain: Sequence[Timed]) -> float | None:
    """The ratio of two mean rates, over the questions that both have."""
    both = {x.question for x in mine} & {x.question for x in plain}
    a, b = (rate(x for x in each if x.question in both) for each in (mine, plain))
    return a / b if a and b else None


def published(path: Path = PUBLISHED) -> dict[str, Any]:
    """Their rows: `source`, and of each its `gpu`, `name`, our `method`, `times` by kind, `accepted` and `overall`."""
    return dict(json.loads(path.read_text(encoding="utf-8")))
