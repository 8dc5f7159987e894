"""The figures of a LabBench run: by method, by kind, and against what the shipped model should reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any

from ..questions.columns import columns
from ..questions.result_file import BenchResult
from ..questions.score import parse_json

VERSION = 1  # of the JSON object
BASELINE = "autoregressive"


@dataclass(frozen=True)
class LabBenchRow:
    """The result of one composition for one question, its turns together.

    said, scores, ends, prompt_tokens: one per turn; scores is None where nothing is judged
    offered, reached: by depth in the draft, from 1: steps whose draft was so deep, and steps that accepted so far
    kv_bytes: the most that all caches held after the prompt or a step;  step_kv_bytes: after a step
    identity: "equal", "tied" or "parted", against plain decoding; None where it was not compared;  alike: tokens until it parts
    fault:    why it has no whole answer;  spent: the measurements from which the six columns follow
    """

    question: int | str
    kind: str
    scorer: str | None
    tags: dict[str, int | str]
    method: str
    said: list[str]
    scores: list[float] | None
    ends: list[str]
    fault: str
    prompt_tokens: list[int]
    tokens: int
    steps: int
    passes: int
    drafted: int
    accepted: int
    offered: list[int]
    reached: list[int]
    kv_bytes: int
    step_kv_bytes: int
    prefill_s: float
    decode_s: float
    identity: str | None
    alike: int
    spent: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """The mean over the turns."""
        return mean(self.scores or [])


class LabBenchResult(BenchResult[LabBenchRow]):
    """What all compositions made of the questions so far."""

    kind = LabBenchRow

    def record(self) -> dict[str, Any]:
        """As plain data: settings, figures, rows and targets."""
        names = list(self.settings["methods"])
        kinds = list(dict.fromkeys(row.kind for row in self.rows))
        of = {name: [row for row in self.rows if row.method == name] for name in names}
        record: dict[str, Any] = {
            "labbench": VERSION,
            "settings": self.settings,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "kinds": {kind: sum(row.kind == kind for row in of[BASELINE]) for kind in kinds},
            "skipped": self.skipped,
            "methods": {
                name: {
                    "exactness": self.settings["exactness"][name],
                    **figures(of[name], of[BASELINE]),
                    "accuracy": macro_accuracy(of[name]),
                    "by_kind": {
                        kind: figures(
                            [row for row in of[name] if row.kind == kind],
                            [row for row in of[BASELINE] if row.kind == kind],
                        )
                        for kind in kinds
                    },
                }
                for name in names
            },
            "columns": columns(self.settings, self.rows),
            "rows": [{**asdict(row), "score": row.score} for row in self.rows],
        }
        return {**record, "targets": compare_targets(record)}


def figures(rows: Sequence[LabBenchRow], plain: Sequence[LabBenchRow]) -> dict[str, Any]:
    """The figures of one composition on some questions; `plain`: the rows of plain decoding on the same ones.

    accuracy: mean score (None: nothing is judged);  tau: tokens per target pass;  tokens_per_s: decoding, without the
    prompt;  ratio: tokens_per_s over that of plain decoding, over the questions that both finished
    peak_kv_bytes, step_kv_bytes: the most held for a question, when its prompt is read or later, and only later
    identity: questions by outcome;  alike: share of plain decoding's tokens that were written before the texts part
    """
    whole = [row for row in rows if not row.fault]
    base = {row.question: row for row in plain if not row.fault}
    both = [row for row in whole if row.question in base]
    mine, theirs = tokens_per_second(both), tokens_per_second([base[row.question] for row in both])
    judged = [row for row in both if row.identity is not None]
    due = sum(base[row.question].tokens for row in judged)
    passes, drafted = sum(row.passes for row in whole), sum(row.drafted for row in rows)
    tokens = sum(row.tokens for row in whole)
    return {
        "questions": len(rows),
        "faults": len(rows) - len(whole),
        "accuracy": mean([row.score for row in rows if row.score is not None]),
        "tokens": tokens,
        "target_passes": passes,
        "tau": tokens / passes if passes else None,
        "drafted": drafted,
        "accepted": sum(row.accepted for row in rows),
        "offered_by_position": sum_by_depth(row.offered for row in rows),
        "accepted_by_position": sum_by_depth(row.reached for row in rows),
        "tokens_per_s": tokens_per_second(whole),
        "ratio": mine / theirs if mine and theirs else None,
        "prefill_s": sum(row.prefill_s for row in whole),
        "decode_s": sum(row.decode_s for row in whole),
        "peak_kv_bytes": max((row.kv_bytes for row in rows), default=0),
        "step_kv_bytes": max((row.step_kv_bytes for row in rows), default=0),
        "identity": count_identities(row.identity for row in judged),
        "alike": sum(row.alike for row in judged) / due if due else None,
    }


def sum_by_depth(counts: Iterable[Sequence[int]]) -> list[int]:
    """Counts by depth in a draft, added up."""
    return [sum(column) for column in zip_longest(*counts, fillvalue=0)]


def count_identities(outcomes: Iterable[str | None]) -> dict[str, int] | None:
    """How often each outcome came, "equal", "tied" or "parted"; None where nothing was compared."""
    there = Counter(x for x in outcomes if x is not None)
    return {x: there[x] for x in ("equal", "tied", "parted")} if there else None


def tokens_per_second(rows: Sequence[LabBenchRow]) -> float | None:
    """Tokens per second of decoding over all of them together."""
    seconds = sum(row.decode_s for row in rows)
    return sum(row.tokens for row in rows) / seconds if seconds else None


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return sum(values) / len(values) if values else None


def macro_accuracy(rows: Iterable[LabBenchRow]) -> float | None:
    """The mean of the kinds' accuracies: each kind counts alike, however many questions it has."""
    by_kind: dict[str, list[float]] = {}
    for row in rows:
        if row.score is not None:
            by_kind.setdefault(row.kind, []).append(row.score)
    return mean([sum(x) / len(x) for x in by_kind.values()])


# ---- what the shipped model should reach by plain decoding


def _json_share(row: Mapping[str, Any]) -> float:
    """The share of its answers that are JSON."""
    return float(sum(parse_json(text) is not None for text in row["said"]) / len(row["said"]))


def _row_score(row: Mapping[str, Any]) -> float:
    return float(row["score"])


@dataclass(frozen=True)
class Target:
    """what: in words;  goal: the least mean of `value` over the rows that `counts` takes"""

    what: str
    goal: float
    counts: Callable[[Mapping[str, Any]], bool]
    value: Callable[[Mapping[str, Any]], float] = _row_score


TARGETS = (
    Target("copy and edit, similarity", 0.90, lambda row: row["kind"] in ("copy", "edit")),
    Target(
        "retrieval at 512 tokens",
        0.90,
        lambda row: row["kind"] == "retrieval" and row["tags"].get("tokens") == 512,
    ),
    Target(
        "retrieval at 1,500 tokens",
        0.70,
        lambda row: row["kind"] == "retrieval" and row["tags"].get("tokens") == 1500,
    ),
    Target(
        "list operations, length up to 8",
        0.80,
        lambda row: row["kind"] == "lists" and _is_at_most(row, "length", 8),
    ),
    Target("answers from a story, span F1", 0.70, lambda row: row["kind"] == "qa"),
    Target(
        "JSON that parses", 0.95, lambda row: row["kind"] == "json" and row["scorer"] == "json", _json_share
    ),
    Target(
        "sums of one step below 100",
        0.80,
        lambda row: row["kind"] == "math" and row["tags"].get("form") == "one-step",
    ),
)


def _is_at_most(row: Mapping[str, Any], tag: str, most: int) -> bool:
    value = row["tags"].get(tag)
    return isinstance(value, int) and value <= most


def compare_targets(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each target: `what`, `goal`, plain decoding's `value`, the number of `questions`, and whether it is `met`.

    value and met are None where no such question was asked. found: a Result's record.
    """
    rows = [row for row in record["rows"] if row["method"] == BASELINE and row["score"] is not None]
    compared = []
    for target in TARGETS:
        values = [target.value(row) for row in rows if target.counts(row)]
        value = mean(values)
        met = None if value is None else value >= target.goal
        compared.append(
            {"what": target.what, "goal": target.goal, "value": value, "questions": len(values), "met": met}
        )
    return compared
