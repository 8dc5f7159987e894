"""Oracle: the speed of choosing, at each position of the text, the best of the drafters that ran on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from .report import AcceptanceReport
from .step_clock import Clock
from .tables import ReportTable, relative_to_largest
from .tally import RunCounts, TextStep

ENOUGH = 30  # tokens that the drafters must have written alike


class OraclePoint(NamedTuple):
    """Drafts of at most `length` levels. alone: speed over plain decoding of each drafter;  oracle: of the best choice"""

    length: int
    alone: tuple[float, ...]
    oracle: float


@dataclass(frozen=True)
class OracleCurve:
    """names: the drafters, in words;  points: by length, from 0;  runs, tokens: texts, and their tokens, that all wrote alike
    chosen: for each drafter the share of the oracle's steps that took its draft, at the longest drafts"""

    names: tuple[str, ...]
    points: list[OraclePoint]
    runs: int
    tokens: int
    chosen: tuple[float, ...]

    @property
    def sentence(self) -> str:
        """Where the best choice lies, in words."""
        best = max(self.points, key=lambda x: x.oracle)
        single = max(max(x.alone) for x in self.points)
        shares = ", ".join(f"{name} {share:.0%}" for name, share in zip(self.names, self.chosen, strict=True))
        return (
            f"Choosing the better drafter at each position would be {best.oracle:.2f} times as fast as plain decoding, at "
            f"length {best.length}; the better one alone has {single:.2f}. Chosen at full length: {shares}. Over "
            f"{self.tokens} tokens that both wrote alike, of {self.runs} prompt{'' if self.runs == 1 else 's'}; where a "
            "drafter began no step, the rest of its draft counts, so that the curve is a lower bound."
        )

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "points": [x._asdict() for x in self.points], "sentence": self.sentence}


class DraftAt(NamedTuple):
    """The draft of one drafter at a position: nodes per level from there, and accepted tokens."""

    nodes: tuple[int, ...]
    path: int


def oracle_curve(reports: Sequence[AcceptanceReport]) -> OracleCurve | str:
    """The curve over the texts that the runs of all reports have in common, priced by the first one's target passes.

    Each drafter's levels cost what they cost in its own runs. A sentence, if there is no curve: without times, or fewer than
    30 tokens in common.
    """
    clocks = [x.speed.clock for x in reports]
    known = [x for x in clocks if x is not None]
    if len(known) < len(clocks):
        return "There is no curve of the best choice: no time was recorded."
    texts = list(_common_texts([x.by_run for x in reports]))
    tokens = sum(length for length, _ in texts)
    if tokens < ENOUGH:
        return (
            f"There is no curve of the best choice: both wrote {tokens} tokens alike, and {ENOUGH} are needed. Run them on the "
            "same prompts, greedily or with the same seeds."
        )
    drafts = [[_drafts_by_position(steps, length) for steps in sides] for length, sides in texts]
    longest = max(len(x.nodes) for sides in drafts for side in sides for x in side)
    points: list[OraclePoint] = []
    plain = known[0].step_us(1, 0)
    chosen = [0] * len(reports)
    for n in range(longest + 1):
        price = _Price(known, n)
        alone = [sum(_fastest(price, [k], text)[0] for text in drafts) for k in range(len(reports))]
        walks = [_fastest(price, range(len(reports)), text) for text in drafts]
        speeds = [tokens * plain / us for us in [*alone, sum(us for us, _ in walks)]]
        points.append(OraclePoint(n, tuple(speeds[:-1]), speeds[-1]))
        if n == longest:
            chosen = [sum(picks.count(k) for _, picks in walks) for k in range(len(reports))]
    count = max(1, sum(chosen))
    return OracleCurve(
        tuple(x.method for x in reports), points, len(texts), tokens, tuple(x / count for x in chosen)
    )


def oracle_table(curve: OracleCurve) -> ReportTable:
    """The curve of two reports as a table."""
    about = "Speed over plain decoding with drafts of at most this depth, on the text that both wrote alike."
    rows = [(str(x.length), *(f"{y:.2f}" for y in x.alone), f"{x.oracle:.2f}") for x in curve.points]
    head = ("depth of the draft", "first", "second", "better one at each position")
    bars = relative_to_largest(x.oracle for x in curve.points)
    return ReportTable("Choosing the better drafter", about, head, rows, bars, [curve.sentence])


def _common_texts(sides: Sequence[Sequence[RunCounts]]) -> Iterator[tuple[int, list[Sequence[TextStep]]]]:
    """For each prompt that all sides have, the tokens that its texts begin alike with, and the steps of each side."""
    by_prompt = [{run.prompt: run for run in reversed(side)} for side in sides]
    for prompt, first in by_prompt[0].items():
        runs = [side[prompt] for side in by_prompt if prompt in side]
        if len(runs) < len(sides):
            continue
        length = min(len(x.text) for x in runs)
        alike = next((i for i in range(length) if any(x.text[i] != first.text[i] for x in runs)), length)
        if alike:
            yield alike, [x.steps for x in runs]


def _drafts_by_position(steps: Sequence[TextStep], length: int) -> list[DraftAt]:
    """What a run drafted at each of the first `length` positions of its text; behind a step's begin, the rest of its draft."""
    drafts = [DraftAt((), 0)] * length
    for step in steps:
        for k in range(step.path + 1):
            if step.at + k < length:
                drafts[step.at + k] = DraftAt(step.nodes[k:], step.path - k)
    return drafts


class _Price:
    """Microseconds of a step with a draft of at most `n` levels, by drafter; each size is priced once."""

    def __init__(self, clocks: Sequence[Clock], n: int):
        self.clocks, self.n = clocks, n
        self.known: dict[tuple[int, tuple[int, ...]], float] = {}

    def step_us(self, drafter: int, nodes: tuple[int, ...]) -> float:
        """Microseconds of a step of `drafter` whose draft has `nodes` on its levels."""
        key = (drafter, nodes[: self.n])
        if key not in self.known:
            target, own = self.clocks[0], self.clocks[drafter]
            rows = 1 + sum(key[1])
            self.known[key] = target.verify_us(rows) + target.rest + own.draft_us(len(key[1]))
        return self.known[key]


def _fastest(
    price: _Price, drafters: Sequence[int], text: Sequence[Sequence[DraftAt]]
) -> tuple[float, list[int]]:
    """The least time in which choices among these drafters write a text, and the drafter of each of their steps."""
    length = len(text[0])
    times = [0.0] * (length + 1)
    picks: list[tuple[int, int]] = [(0, 0)] * length
    for at in reversed(range(length)):
        times[at] = float("inf")
        for drafter in drafters:
            draft = text[drafter][at]
            after = min(length, at + min(draft.path, price.n) + 1)
            if (us := price.step_us(drafter, draft.nodes) + times[after]) < times[at]:
                times[at], picks[at] = us, (drafter, after)
    chosen: list[int] = []
    at = 0
    while at < length:
        drafter, at = picks[at]
        chosen.append(drafter)
    return times[0], chosen
