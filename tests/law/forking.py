"""Chance that takes every outcome: walking all paths gives a method's exact law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from decodescope.engine.chance import Chance, Draw, Purpose
from torch import Tensor

R = TypeVar("R")


class ForkingChance(Chance):
    """Replays the outcomes of `prefix`, then takes the first untried one at every decision.

    weight: probability of the path so far;  steps: per decision, the outcome taken and how many there are
    A decision with one possible outcome is no fork: outcomes of probability 0 do not exist.
    """

    def __init__(self, prefix: Sequence[int] = ()):
        super().__init__(0)
        self.prefix = list(prefix)
        self.steps: list[tuple[int, int]] = []
        self.weight = 1.0

    def fork(self, weights: Sequence[float]) -> int:
        """The index of the outcome taken, among outcomes with these positive `weights`, which sum to 1."""
        if len(weights) == 1:
            return 0
        at = len(self.steps)
        choice = self.prefix[at] if at < len(self.prefix) else 0
        self.steps.append((choice, len(weights)))
        self.weight *= weights[choice]
        return choice

    def draw(self, p: Tensor, position: int, purpose: Purpose = "token") -> Draw:
        law = p.double().tolist()
        total = sum(law)
        assert total > 0 and total < float("inf"), f"a token is drawn from {law}"
        support = [x for x, p_x in enumerate(law) if p_x > 0]
        token = support[self.fork([law[x] / total for x in support])]
        low = sum(law[:token]) / total
        return Draw(token, low, low, low + law[token] / total)

    def accept(self, ratio_num: float, ratio_den: float, position: int) -> tuple[bool, float]:
        chance = min(1.0, ratio_num / ratio_den) if ratio_den > 0 else float(ratio_num > 0)
        if chance in (0.0, 1.0):
            return chance == 1.0, 0.0
        return self.fork([chance, 1 - chance]) == 0, 0.0

    def shuffle(self, k: int, position: int) -> list[int]:
        left, order = list(range(k)), []
        while left:
            order.append(left.pop(self.fork([1 / len(left)] * len(left))))
        return order

    def uniform(self, position: int, purpose: Purpose) -> float:
        raise AssertionError("a bare uniform has no finite set of outcomes: ask for a draw, a test or an order")


class LatticeChance(ForkingChance):
    """Scripted uniforms: each is every one of `points` in turn, all equally likely; draws and tests are the shipped ones.

    With midpoints of m equal cells a law whose thresholds are multiples of 1 / m comes out exactly.
    """

    points: Sequence[float] = ()

    def draw(self, p: Tensor, position: int, purpose: Purpose = "token") -> Draw:
        return Chance.draw(self, p, position, purpose)

    def accept(self, ratio_num: float, ratio_den: float, position: int) -> tuple[bool, float]:
        return Chance.accept(self, ratio_num, ratio_den, position)

    def shuffle(self, k: int, position: int) -> list[int]:
        return Chance.shuffle(self, k, position)

    def uniform(self, position: int, purpose: Purpose) -> float:
        return self.points[self.fork([1 / len(self.points)] * len(self.points))]


def lattice(points: Sequence[float]) -> type[LatticeChance]:
    """A chance whose uniforms run through `points`."""
    return type("Lattice", (LatticeChance,), {"points": tuple(points)})


def outcomes(function: Callable[[ForkingChance], R], make: type[ForkingChance] = ForkingChance) -> list[tuple[float, R]]:
    """(weight, result) of every path of `function`, depth first. It must start afresh at each call."""
    made: list[tuple[float, R]] = []
    prefix: list[int] = []
    while True:
        chance = make(prefix)
        result = function(chance)
        made.append((chance.weight, result))
        steps = chance.steps
        while steps and steps[-1][0] + 1 == steps[-1][1]:
            steps.pop()
        if not steps:
            return made
        prefix = [choice for choice, _ in steps]
        prefix[-1] += 1
