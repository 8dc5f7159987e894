"""Explanation: a decision in words and numbers, and how it is displayed."""

from __future__ import annotations

from dataclasses import dataclass, field

from .residual import DistributionRow


@dataclass(frozen=True)
class ExplanationLine:
    """One sentence, and the sums that belong to it."""

    words: str
    sums: tuple[str, ...] = ()


@dataclass(repr=False)
class Explanation:
    """An explained decision. Shown as a card in a notebook, as text by print.

    status:  accept, reject, unreached, bonus, resample or target: what a view calls it
    numbers: (word, symbol, value) as recorded;  test: the inequality that decided, with its numbers
    box:     (p, q, u) for the picture, where there was a draw: the box is q, its filled part the share that the target accepts
    against: what u was held against, in symbols
    agrees:  whether the verdict follows from the numbers; None where the record does not hold enough
    rows:    distributions at this place, and after a rejection the residual; they add up to one
    """

    status: str
    title: str
    token: str
    where: str
    rule: str
    numbers: list[tuple[str, str, float | None]] = field(default_factory=list)
    test: str = ""
    box: tuple[float, float, float] | None = None
    agrees: bool | None = None
    lines: list[ExplanationLine] = field(default_factory=list)
    rows: list[DistributionRow] = field(default_factory=list)
    rows_title: str = ""
    then: str = ""
    against: str = "p / q"

    @property
    def has_draft_distribution(self) -> bool:
        """Whether the rows contain a distribution that the draft was drawn from."""
        return any(row.q > 0 for row in self.rows)

    def __str__(self) -> str:
        lines = [f"{self.title}: {self.token}   ({self.where})"]
        for i, line in enumerate(self.lines, 1):
            lines += [f"{i}. {line.words}", *(f"       {one}" for one in line.sums)]
        if self.rows:
            lines.append(self.rows_title)
            lines += [f"   {row.format_row(self.has_draft_distribution)}" for row in self.rows]
        if self.then:
            lines.append(self.then)
        follows = {
            True: "The verdict follows from the numbers.",
            False: "THE VERDICT DOES NOT FOLLOW FROM THE NUMBERS.",
        }
        return "\n".join(lines + ([follows[self.agrees]] if self.agrees is not None else []))

    __repr__ = __str__
