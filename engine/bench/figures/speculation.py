"""The figures of a speculation run: by method, by kind of question, and against what the methods should reach."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..clock.speed import ASSISTED, LOOKUP
from ..questions.bootstrap import bootstrap_interval
from ..questions.columns import columns
from ..questions.result_file import BenchResult
from ..questions.spec_bench import spec_bench_figures
from .labbench import count_identities, sum_by_depth

VERSION = 2  # of the JSON object; 1 had the first turn of each question alone


@dataclass(frozen=True)
class SpecRow:
    """The result of one method for one question, all its turns together, in all rounds.

    prompt_tokens, tokens: of one round
    steps, passes, drafted, accepted, offered, reached, identity: as in LabBench's rows. For transformers nobody sees the steps:
                                                                  steps and passes are 0
    seconds: of each round the whole calls, prompts included;  decode_s: their steps alone
    step_us, pass_us, head_us, own_us: medians over the steps: of a step, and in it of passes of models, nets of draft heads,
                                       and all the rest
    draft_s: of all steps of all rounds, before the check
    """

    question: int | str
    kind: str
    method: str
    fault: str = ""
    prompt_tokens: int = 0
    tokens: int = 0
    steps: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    offered: Sequence[int] = ()
    reached: Sequence[int] = ()
    identity: str | None = None
    seconds: Sequence[float] = ()
    decode_s: Sequence[float] = ()
    draft_s: float = 0.0
    step_us: float = 0.0
    pass_us: float = 0.0
    head_us: float = 0.0
    own_us: float = 0.0
    spent: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def rate(self) -> float | None:
        """Tokens a second of the steps alone; medians over the rounds."""
        return self.tokens / statistics.median(self.decode_s) if self.decode_s else None

    @property
    def whole_rate(self) -> float | None:
        """Tokens a second of the whole call."""
        return self.tokens / statistics.median(self.seconds) if self.seconds else None


class SpecResult(BenchResult[SpecRow]):
    """What all methods made of the questions so far."""

    kind = SpecRow

    def record(self) -> dict[str, Any]:
        """As plain data: settings, figures, rows and goals."""
        settings = self.settings
        kinds = list(dict.fromkeys(row.kind for row in self.rows))
        of = {name: [row for row in self.rows if row.method == name] for name in settings["contestants"]}
        theirs = {name: of.get(name, []) for name in (ASSISTED, LOOKUP)}

        def told(name: str, among: Iterable[str]) -> dict[str, Any]:
            kept = set(among)
            plain = of[settings["contestants"][name]["against"]]
            return figures(
                *([row for row in rows if row.kind in kept] for rows in (of[name], plain, *theirs.values()))
            )

        record: dict[str, Any] = {
            "speculation": VERSION,
            "settings": settings,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "kinds": {kind: len({row.question for row in self.rows if row.kind == kind}) for kind in kinds},
            "skipped": self.skipped,
            "methods": {
                name: {**about, **told(name, kinds), "by_kind": {kind: told(name, [kind]) for kind in kinds}}
                for name, about in settings["contestants"].items()
            },
            "groups": {
                group: {name: told(name, among)["ratio"] for name in settings["contestants"]}
                for group, among in GROUPS.items()
            },
            "spec_bench": spec_bench_figures(
                self.rows,
                {x: one["against"] for x, one in settings["contestants"].items()},
                bool(settings.get("questions", {}).get("spec_bench")),
            ),
            "columns": columns(self.settings, self.rows),
            "rows": [asdict(row) for row in self.rows],
        }
        return {**record, "goals": goals(record)}


def figures(
    rows: Sequence[SpecRow], plain: Sequence[SpecRow], assisted: Sequence[SpecRow], lookup: Sequence[SpecRow]
) -> dict[str, Any]:
    """The figures of one method on some questions; the others are the rows of those it is compared with.

    tau: tokens per target pass
    ratio: tokens a second of the steps alone, over plain decoding's;  whole: of the whole call, prompt included
    against_assisted, against_lookup: the same over transformers'. Each ratio is the median over the questions, or None, with
                                      `interval`
    draft: share of the steps' time that was before the check;  step_us: the median step (over its steps, then over the
           questions)
    passes, heads, overhead: shares of it that were passes of models, nets of draft heads, and neither
    """
    whole = [row for row in rows if not row.fault]
    passes, timed = sum(row.passes for row in whole), [row for row in whole if row.step_us]
    time = sum(sum(row.decode_s) for row in timed)
    return {
        "questions": len(rows),
        "faults": len(rows) - len(whole),
        "tokens": sum(row.tokens for row in whole),
        "target_passes": passes,
        "tau": sum(row.tokens for row in whole) / passes if passes else None,
        "drafted": sum(row.drafted for row in whole),
        "accepted": sum(row.accepted for row in whole),
        "offered_by_position": sum_by_depth(row.offered for row in whole),
        "accepted_by_position": sum_by_depth(row.reached for row in whole),
        "tokens_per_s": median_of_known([row.rate for row in whole]),
        "ratio": compare_rates(whole, plain, lambda row: row.rate),
        "whole": compare_rates(whole, plain, lambda row: row.whole_rate),
        "against_assisted": compare_rates(whole, assisted, lambda row: row.whole_rate),
        "against_lookup": compare_rates(whole, lookup, lambda row: row.whole_rate),
        "draft": sum(row.draft_s for row in timed) / time if time else None,
        "step_us": median_of_known([row.step_us for row in timed]),
        "passes": median_of_known([row.pass_us / row.step_us for row in timed]),
        "heads": median_of_known([row.head_us / row.step_us for row in timed]),
        "overhead": median_of_known([row.own_us / row.step_us for row in timed]),
        "identity": count_identities(row.identity for row in whole),
    }


def compare_rates(
    mine: Sequence[SpecRow], theirs: Sequence[SpecRow], rate: Callable[[SpecRow], float | None]
) -> dict[str, Any] | None:
    """How often a rate is that of the others on the same question: the `median` over the questions, and its spread.

    It also has the number of questions, the `lowest` and `highest`, and the `interval` of the median. None if there are none.
    """
    base = {row.question: rate(row) for row in theirs if not row.fault}
    pairs = [(rate(row), base.get(row.question)) for row in mine]
    each = [a / b for a, b in pairs if a and b]
    if not each:
        return None
    return {
        "median": statistics.median(each),
        "interval": bootstrap_interval(each),
        "lowest": min(each),
        "highest": max(each),
        "questions": len(each),
    }


def median_of_known(values: Sequence[float | None]) -> float | None:
    """The median of those that are there."""
    there = [x for x in values if x is not None]
    return statistics.median(there) if there else None


# ---- what the methods should reach on the shipped models

GROUPS = {
    "code": ("code",),
    "copy and edit": ("copy", "edit"),
    "stories": ("summary",),
}  # summaries are taken of stories
BEST = {"code": 2.5, "copy and edit": 4.0}  # times plain decoding, by the best method
GAINS, MODEL = {"code": 1.0, "stories": 1.0}, "draft_model"  # the same, by the best setting of that drafter
COUNTED, ABOVE = 6, 1.3  # so many methods, so many times plain decoding, over all questions
OVERHEAD = 0.1  # of the median step, at most


def goals(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compare each goal of the bench with the value that was reached.

    A goal has `what`, `goal`, the `value` reached, whether it is `met` (None: not measured), and the `methods` that decide it.
    found: a SpecResult's record. Methods that change the distribution count for no goal, and methods that draw count for the
    overhead alone. Several settings of one method count once.
    """
    kept = {name: x for name, x in record["methods"].items() if x["exactness"] != "lossy"}
    ours = {name: x for name, x in kept.items() if x["side"] == "decodescope" and not x["plain"]}
    greedy = {name: x for name, x in ours.items() if not x["drawn"]}
    rows: list[dict[str, Any]] = []
    drafting = [name for name, x in greedy.items() if x["method"] == MODEL]
    rows += [
        _best_goal(record, f"best method on {group}", group, goal, greedy) for group, goal in BEST.items()
    ]
    rows += [
        _best_goal(record, f"{MODEL} on {group}", group, goal, drafting) for group, goal in GAINS.items()
    ]
    above = {
        x["method"]: name
        for name, x in reversed(greedy.items())
        if x["ratio"] and x["ratio"]["median"] > ABOVE
    }
    counted = len(above) if any(x["ratio"] for x in greedy.values()) else None
    rows.append(
        _goal_record(
            f"methods above {ABOVE:g} times plain decoding", COUNTED, counted, list(reversed(above.values()))
        )
    )
    shares = {name: x["overhead"] for name, x in ours.items() if x["overhead"] is not None}
    worst = max(shares.values(), default=None)
    heavy = [name for name, x in shares.items() if x > OVERHEAD]
    least = _goal_record("overhead, at most, of the median step", OVERHEAD, worst, heavy)
    return [*rows, {**least, "met": not heavy if shares else None}]


def _best_goal(
    record: Mapping[str, Any], what: str, group: str, goal: float, names: Iterable[str]
) -> dict[str, Any]:
    reached = {name: x["median"] for name in names if (x := record["groups"][group][name]) is not None}
    best = max(reached, key=lambda name: reached[name], default=None)
    return _goal_record(what, goal, None if best is None else reached[best], [] if best is None else [best])


def _goal_record(what: str, goal: float, value: float | None, methods: list[str]) -> dict[str, Any]:
    return {
        "what": what,
        "goal": goal,
        "value": value,
        "met": None if value is None else value >= goal,
        "methods": methods,
    }
