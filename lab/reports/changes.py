"""Changes: two reports side by side, and the changes from the first to the second, with intervals paired by prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.engine.trace.query.prompt_reading import READINGS
from decodescope.lab.formatting.style import format_percent

from .oracle import oracle_curve, oracle_table
from .report import AcceptanceReport
from .tables import FEW, ReportTable
from .tally import FIGURES, NONE, Count, Figure

ENOUGH = 5  # prompts that both reports need before a change has an interval
SURE, DRAWS = 0.95, 2000  # level of an interval, by the percentile bootstrap over prompts
FATES = {
    "refused": "rejected at some place",
    "whole": "accepted to its end",
    "none": "no draft",
    "cut": "cut by the end",
}
ByPrompt = dict[tuple[int, ...], dict[Figure, Count]]  # the sum of counts over the runs of a prompt


@dataclass
class ReportPair:
    """Two reports to compare, as counts by prompt.

    sides: for each the prompts that count: those that both have, if these are ENOUGH, else its own
    shared: the prompts that both have;  left: runs of both that do not count;  alike: whether both have the same prompts
    draws: int [DRAWS, prompts], how often each sample contains each prompt that both have
    """

    sides: tuple[ByPrompt, ByPrompt]
    shared: list[tuple[int, ...]]
    left: int
    alike: bool
    draws: np.ndarray

    @classmethod
    def of(cls, a: AcceptanceReport, b: AcceptanceReport) -> ReportPair:
        """Two reports, their runs counted together by prompt."""
        one, two = _counts_by_prompt(a), _counts_by_prompt(b)
        shared = [x for x in one if x in two]
        alike = one.keys() == two.keys()
        left = 0
        if len(shared) >= ENOUGH:
            left = sum(run.prompt not in shared for report in (a, b) for run in report.by_run)
            one, two = ({prompt: side[prompt] for prompt in shared} for side in (one, two))
        n = max(1, len(shared))
        draws = np.random.default_rng(0).multinomial(n, [1 / n] * n, size=DRAWS)
        return cls((one, two), shared, left, alike, draws)

    @property
    def has_intervals(self) -> bool:
        """Whether changes have intervals."""
        return len(self.shared) >= ENOUGH

    def figure(self, of: Figure) -> list[Count]:
        """The counts of both for a figure: for each side (counted, of how many)."""
        return [_sum_counts([counts.get(of, NONE) for counts in side.values()]) for side in self.sides]

    def by_prompt(self, of: Figure) -> list[list[Count]]:
        """The counts of both for a figure, of each prompt that both have."""
        return [[side[prompt].get(of, NONE) for prompt in self.shared] for side in self.sides]

    def interval(self, of: Figure) -> tuple[float, float] | int:
        """The interval of a figure's change, by resampling prompts together with both sides' results.
        If too few prompts have the figure on both sides, it is their number. The pair must be `paired`."""
        one, two = self.by_prompt(of)
        both = sum(x[1] > 0 and y[1] > 0 for x, y in zip(one, two, strict=True))
        return both if both < ENOUGH else change_interval(one, two, self.draws)


def change_interval(a: Sequence[Count], b: Sequence[Count], draws: np.ndarray) -> tuple[float, float]:
    """The interval of a quotient's change from `a` to `b`: sum of the counts over the sum of the totals, per prompt.

    draws: int [D, prompts], how often each of D samples contains each prompt
    """
    one, two = _draw_quotients(a, b, draws)
    return _percentiles(two - one)


def _draw_quotients(a: Sequence[Count], b: Sequence[Count], draws: np.ndarray) -> Iterator[np.ndarray]:
    """The quotients of both in each sample, float [D] each; not finite where a sample has no prompt with the figure."""
    for side in (a, b):
        sums = draws @ np.asarray(side, dtype=float)  # [D, 2]
        with np.errstate(divide="ignore", invalid="ignore"):
            yield sums[:, 0] / sums[:, 1]


def _percentiles(drawn: np.ndarray) -> tuple[float, float]:
    """The interval that holds a share SURE of the samples' figures; those that are not finite are left out."""
    drawn = np.sort(drawn[np.isfinite(drawn)])
    cut = round((1 - SURE) / 2 * len(drawn))
    return float(drawn[cut]), float(drawn[len(drawn) - 1 - cut])


@dataclass(frozen=True)
class RatioCheck:
    """The second report's figure over the first one's. of: its name;  low, high: the paired interval;  least: what is allowed

    failed: below `least`, and the interval holds no 1, so that it is no accident of the prompts
    """

    of: str
    ratio: float
    low: float
    high: float
    prompts: int
    least: float

    @property
    def failed(self) -> bool:
        """Whether the second is worse than allowed."""
        return self.ratio < self.least and self.high < 1

    def __str__(self) -> str:
        worse = "worse than" if self.failed else "within"
        sure = (
            ""
            if self.failed or self.ratio >= self.least
            else "; it is below that, but the interval holds 1: give more prompts to be sure"
        )
        return (
            f"{self.of[0].upper()}{self.of[1:]}: {self.ratio:.3f} of the other report's ({100 * SURE:.0f} %, paired over "
            f"{self.prompts} prompts: {self.low:.3f} to {self.high:.3f}), {worse} the limit of {self.least:g}{sure}."
        )


def check_ratio(before: AcceptanceReport, after: AcceptanceReport, least: float) -> RatioCheck:
    """Whether tokens per target pass fell below `least` times those of `before`, over the prompts that both have.

    Raises ValueError, a sentence, if these are too few.
    """
    pair, of = ReportPair.of(before, after), FIGURES[1]
    if not pair.has_intervals:
        raise ValueError(
            f"The two reports have {len(pair.shared)} prompts in common, and {ENOUGH} are needed to compare them: report on "
            "runs over the same prompts."
        )
    (a, steps_a), (b, steps_b) = pair.figure(of)
    first, second = pair.by_prompt(of)
    one, two = _draw_quotients(first, second, pair.draws)
    low, high = _percentiles(two / one)
    return RatioCheck(of[1], (b / steps_b) / (a / steps_a), low, high, len(pair.shared), least)


def change_tables(a: AcceptanceReport, b: AcceptanceReport) -> list[ReportTable]:
    """Tables of figures of both and their change. Rows that neither report has are left out.
    They show the gain of a step, the outcomes of the drafts, acceptance by depth and by kind of token, and the speed of
    choosing the better draft at each position."""
    pair = ReportPair.of(a, b)
    figures = [
        _row(pair, of, of[1], _format_mean, _format_change)
        for of in FIGURES
        if any(many for _, many in pair.figure(of))
    ]
    fates = [(("fates", name), word) for name, word in FATES.items()]
    became = [
        _row(pair, of, word, _format_share, _format_points)
        for of, word in fates
        if any(counted for counted, _ in pair.figure(of))
    ]
    curve = oracle_curve([a, b])
    few = f"Share accepted, of how many; (few): fewer than {FEW}."
    each = [
        ReportTable(
            "What changed",
            _describe_pairing(pair),
            _head(pair, "figure"),
            figures,
            below=[*_reading_notes(a, b), *([curve] if isinstance(curve, str) else [])],
        ),
        ReportTable(
            "What became of the drafts", "Shares of the steps.", _head(pair, "draft of a step"), became
        ),
        ReportTable("By depth", few, _head(pair, "depth"), _paired_share_rows(pair, "depths")),
        ReportTable("By kind of token", few, _head(pair, "guess"), _paired_share_rows(pair, "kinds")),
    ]
    return [*(x for x in each if x.rows), *([] if isinstance(curve, str) else [oracle_table(curve)])]


def _reading_notes(a: AcceptanceReport, b: AcceptanceReport) -> list[str]:
    """That the prompts of both were put in different ways, if so."""
    if a.reading == b.reading:
        return []
    return [
        f"The first one's prompts were {READINGS[a.reading]}, the second one's {READINGS[b.reading]}, so a change may come "
        "from that."
    ]


def _counts_by_prompt(report: AcceptanceReport) -> ByPrompt:
    sides: ByPrompt = {}
    for run in report.by_run:
        known = sides.setdefault(run.prompt, {})
        for of, count in run.counts.items():
            known[of] = _sum_counts([known.get(of, NONE), count])
    return sides


def _sum_counts(counts: Sequence[Count]) -> Count:
    return sum(x[0] for x in counts), sum(x[1] for x in counts)


def _describe_pairing(pair: ReportPair) -> str:
    """Which prompts the figures cover, and whether changes have intervals, or why not."""
    about = "Accepted length: drafted tokens accepted per drafting step, as a mean over the runs."
    many = len(pair.shared)
    if not pair.has_intervals:
        common = "1 prompt" if many == 1 else f"{many or 'no'} prompts"
        about += f" No change has an interval: the two have {common} in common, and {ENOUGH} are needed to pair them."
        return about if pair.alike else about + " The prompts of the two differ, so a change may be theirs."
    about += f" All figures here are over the {many} prompts that both have"
    if pair.left:
        about += f"; {pair.left} runs of other prompts are left out"
    about += f". The {100 * SURE:.0f} % interval of a change is paired: prompts are drawn again, each with its runs of both "
    return about + "(percentile bootstrap). That of tokens a second holds the noise of the machine too."


def _head(pair: ReportPair, first: str) -> tuple[str, ...]:
    return (
        first,
        "first",
        "second",
        "change",
        *([f"{100 * SURE:.0f} %, paired"] if pair.has_intervals else []),
    )


def _row(
    pair: ReportPair, of: Figure, word: str, written: Callable[[Count], str], signed: Callable[[float], str]
) -> tuple[str, ...]:
    """A figure of both, its change and its interval. written(count): one side's figure in words;  signed(x): a change"""
    counts = pair.figure(of)
    cells = [written(count) if count[1] else "–" for count in counts]
    x, y = (counted / many if many else None for counted, many in counts)
    cells.append("–" if x is None or y is None else signed(y - x))
    return (word, *cells, *([_format_interval(pair.interval(of), signed)] if pair.has_intervals else []))


def _format_interval(interval: tuple[float, float] | int, signed: Callable[[float], str]) -> str:
    if isinstance(interval, int):
        return f"none: {interval} prompt{'' if interval == 1 else 's'} with both"
    low, high = interval
    return f"{signed(low)} to {signed(high)}" + (
        ", not distinguishable from none" if low <= 0 <= high else ""
    )


def _paired_share_rows(pair: ReportPair, table: str) -> list[tuple[str, ...]]:
    """The rows of a table of shares, in the order of the reports."""
    labels = dict.fromkeys(
        of for side in pair.sides for counts in side.values() for of in counts if of[0] == table
    )
    return [
        _row(pair, of, of[1], _format_tested_share, _format_points)
        for of in labels
        if any(many for _, many in pair.figure(of))
    ]


def _format_mean(count: Count) -> str:
    return f"{count[0] / count[1]:.2f}"


def _format_change(x: float) -> str:
    return f"{x:+.2f}"


def _format_share(count: Count) -> str:
    return format_percent(count[0] / count[1])


def _format_tested_share(count: Count) -> str:
    return f"{_format_share(count)} of {count[1]:.0f}" + (" (few)" if count[1] < FEW else "")


def _format_points(x: float) -> str:
    return f"{100 * x:+.0f} points"
