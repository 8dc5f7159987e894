"""Step tally: the content of a card for a step that tried things by itself."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class TallyRow:
    """One thing that was tried. text: its name;  number, bar: it holds if number >= bar, None: that did not decide
    holds: the recorded result;  word: the outcome"""

    text: str
    number: float | None
    bar: float | None
    holds: bool
    word: str

    @property
    def is_consistent(self) -> bool:
        """Whether number and bar lead to the recorded result."""
        return self.bar is None or (self.number is not None and bool(self.number >= self.bar) == self.holds)


@dataclass
class StepTally:
    """What one step tried. title: of a card; says: of a step, in a clause;  number, bar: what the rows' numbers are
    rows: one for each thing that was tried;  lines: sentences on how it is decided;  at: the row where a reader looks first
    account: paragraphs for a notebook, each with the items listed below it; empty: rows and lines are shown
    where: the text that a notebook shows next to the title, "": `says`;  rule: the rule that decided"""

    title: str
    says: str
    number: str
    bar: str
    rows: list[TallyRow] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    at: int = 0
    account: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    where: str = ""
    rule: str = "tally"
