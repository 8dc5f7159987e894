"""Spec-Bench's own arithmetic, so that a figure here can be compared with a published one.

Source: Xia et al. 2024, arXiv:2401.07851; hemingkx/Spec-Bench, evaluation/speed.py. Of each question tokens a second of its
turns together, prompts included: all their tokens over all their time. Of a method the mean of these rates over the questions.
Times plain is the ratio of two such means, taken in each round, and then the mean over the rounds. Mean accepted tokens is the
mean over all steps of all questions, the target's own token included.

Its 13 categories are 6 tasks, and the published rows are for these tasks. Questions of another file keep its kinds, and have no
published row: a kind `math` of LabBench is not MT-bench's. Unlike theirs, the tokens of plain decoding are counted as they were
written; speed.py counts those of its text, tokenized once more.

`bench speculation` itself compares question by question and takes medians, of the steps alone: the two agree where questions
are alike.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from .questions import BenchQuestion

PUBLISHED = Path(__file__).resolve().parents[3] / "assets" / "bench" / "spec_bench.json"
TASKS: dict[str, tuple[str, ...]] = {  # as in its paper -> categories of its file, as speed.py groups them
    "conversation": (
        "writing",
        "roleplay",
        "reasoning",
        "math",
        "coding",
        "extraction",
        "stem",
        "humanities",
    ),
    "translation": ("translation",),
    "summarization": ("summarization",),
    "question answering": ("qa",),
    "mathematical reasoning": ("math_reasoning",),
    "retrieval": ("rag",),
}
TALKS = "conversation"  # MT-bench's questions, of two turns each
TASK_OF = {category: task for task, categories in TASKS.items() for category in categories}


class TimedRow(Protocol):
    """What one method made of one question."""

    @property
    def question(self) -> int | str:
        """Its id."""
        ...

    @property
    def kind(self) -> str:
        """Its category in the file."""
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
        """Written in all turns."""
        ...

    @property
    def steps(self) -> int:
        """In which they were written."""
        ...

    @property
    def seconds(self) -> Sequence[float]:
        """Of each round: the whole calls of all turns."""
        ...


def is_spec_bench(questions: Iterable[BenchQuestion]) -> bool:
    """Whether all questions are as in Spec-Bench's file: of its categories, MT-bench's with two turns and the others with one,
    and without tags, which only LabBench's have."""
    return all(
        x.kind in TASK_OF and not x.tags and len(x.turns) == (2 if TASK_OF[x.kind] == TALKS else 1)
        for x in questions
    )


def spec_bench_task(question: BenchQuestion) -> str:
    """Spec-Bench's task of one of its questions."""
    return TASK_OF[question.kind]


def spec_bench_figures(
    rows: Sequence[TimedRow], against: Mapping[str, str], theirs: bool
) -> dict[str, dict[str, Any]]:
    """Method -> its figures: `rate_ratio` by group and `overall` over plain decoding, `tokens_per_s`, `accepted`; None
    where nothing was timed. against: method -> the plain decoding that it is compared with;  theirs: whether the groups are
    Spec-Bench's tasks, else they are the kinds of the file"""
    asked = [row for row in rows if not row.fault and row.seconds]
    groups = {row.kind: TASK_OF[row.kind] if theirs else row.kind for row in asked}
    names = list(TASKS) if theirs else list(groups)
    figures: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(row.method for row in asked):
        mine = [row for row in asked if row.method == name]
        plain = [row for row in asked if row.method == against.get(name)]
        of = {
            group: rate_ratio(*([x for x in each if groups[x.kind] == group] for each in (mine, plain)))
            for group in names
        }
        steps = sum(row.steps for row in mine)
        rates = [mean_rate(mine, i) for i in range(count_rounds(mine))]
        figures[name] = {
            "times": of,
            "overall": rate_ratio(mine, plain),
            "tokens_per_s": statistics.fmean(rates),
            "accepted": sum(row.tokens for row in mine) / steps if steps else None,
        }
    return figures


def count_rounds(rows: Iterable[TimedRow]) -> int:
    """In how many rounds all of these were timed."""
    return min((len(row.seconds) for row in rows), default=0)


def mean_rate(rows: Iterable[TimedRow], i: int) -> float:
    """The mean over questions of tokens a second in round `i`."""
    return statistics.fmean(row.tokens / row.seconds[i] for row in rows)


def rate_ratio(mine: Sequence[TimedRow], plain: Sequence[TimedRow]) -> float | None:
    """The ratio of two mean rates, over the questions that both have: the mean over the rounds."""
    both = {x.question for x in mine} & {x.question for x in plain}
    a, b = ([x for x in each if x.question in both] for each in (mine, plain))
    ratios = [mean_rate(a, i) / mean_rate(b, i) for i in range(count_rounds([*a, *b])) if mean_rate(b, i)]
    return statistics.fmean(ratios) if ratios else None


def load_published(path: Path = PUBLISHED) -> dict[str, Any]:
    """Their rows: `source`, and of each its `gpu`, `name`, our `method`, `rate_ratio` by task, `accepted` and `overall`."""
    return dict(json.loads(path.read_text(encoding="utf-8")))
