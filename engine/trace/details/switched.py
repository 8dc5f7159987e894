"""Switch: which of two models wrote the tokens of a step, why, and which one goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..values.limits import TraceError
from .looked import Look, Looked

Size = Literal["small", "large"]
LANES = {"small": "draft", "large": "target"}
ORIGINS = {"small": "draft", "large": "target"}


@dataclass
class Block:
    """What the small model wrote in a row, and what the large one makes of it.

    tokens: ids that the small model wrote;  sure: its largest probability at each, and last at the place that it gave up, if
            it did;  loss: of each token -ln p by the large model;  choice: and the large model's likeliest token there
    kept:   so many of them stay;  bar: a loss above it takes a token back that is not the likeliest
    """

    tokens: list[int]
    sure: list[float]
    loss: list[float]
    choice: list[int]
    kept: int
    bar: float


@dataclass
class Switch:
    """Who wrote in a step, and who goes on.

    wrote:  who wrote; of a block the large model, which judged it;  next: whose turn it is then
    tau:    what the score or the mean was held against
    stay:   tokens that the writer has made in a row, this one included
    caught: rows that the writer, of a block the small model, had to read first, since the other one wrote them, the
            prompt's too where it was not read yet
    score:  by what the router judged this step: the entropy of the writer's law in bits, or the small model's largest
            probability at the last place that it was asked about; None: nothing was asked
    mean:   of the last scores, where the router looks at several
    block:  what the large model judged, where the router lets it judge
    looks:  what the router ran beside the passes
    """

    wrote: Size
    next: Size
    tau: float
    stay: int
    caught: int
    score: float | None = None
    mean: float | None = None
    block: Block | None = None
    looks: list[Look] = field(default_factory=list)

    @property
    def looks_due(self) -> list[tuple[Looked, str, int]]:
        """What its router had to look at."""
        block = self.block
        if block is None:
            return [("entropy", LANES[self.wrote], 1)]
        both: list[tuple[Looked, str, int]] = [
            ("law", "draft", len(block.sure)),
            ("law", "target", len(block.tokens)),
        ]
        return [x for x in both if x[2]]


def consistent_switch(switch: Switch | None, vocab: int) -> None:
    """What must agree inside the record, if there is one. Raises TraceError."""
    if switch is None:
        return
    if switch.stay < 0 or switch.caught < 0:
        raise TraceError(f"switch has a stay of {switch.stay} and {switch.caught} rows caught up")
    block = switch.block
    if block is None:
        return
    n = len(block.tokens)
    if (
        not len(block.loss) == len(block.choice) == n
        or not n <= len(block.sure) <= n + 1
        or not 0 <= block.kept <= n
    ):
        raise TraceError(
            f"switch has a block of {n} tokens, {block.kept} of them kept, with other numbers than it has tokens"
        )
    if any(not 0 <= x < vocab for x in (*block.tokens, *block.choice)):
        raise TraceError(f"switch.block holds an id outside the vocabulary of {vocab:,}")
    if not all(0 <= x <= 1 + 1e-6 for x in block.sure):
        raise TraceError("switch.block.sure has an entry that is no probability")


def kept_of(tokens: list[int], loss: list[float], choice: list[int], bar: float) -> int:
    """How many tokens of a block stay: those before the first whose loss is above the bar and that is not the likeliest."""
    wrong = (i for i, token in enumerate(tokens) if loss[i] > bar and token != choice[i])
    return next(wrong, len(tokens))


def goes_on(active: Size, mean: float, tau: float, stay: int, least: int) -> Size:
    """Whose turn it is by a mean entropy: nobody's but the writer's before it has made `least` tokens in a row."""
    if stay < least:
        return active
    return "large" if mean > tau else "small"
