"""A Chance that takes every outcome: walking all paths gives a method's exact output distribution.

The walker is the engine's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from decodescope.engine.decoding.values.chance import Chance, Draw, Purpose, Remainder
from decodescope.engine.session.replay.exact_distribution import EnumeratedChance
from decodescope.engine.session.replay.exact_distribution import outcomes as limited

R = TypeVar("R")


class LatticeChance(EnumeratedChance):
    """Scripted uniforms: each takes every one of `points` in turn, all equally likely; draws and tests are the shipped ones.

    With midpoints of m equal cells, a distribution with thresholds at multiples of 1 / m comes out exactly.
    """

    points: Sequence[float] = ()

    def draw(self, p: Tensor, position: int, purpose: Purpose = "token") -> Draw:
        """A draw by the next of the points."""
        return Chance.draw(self, p, position, purpose)

    def draw_remaining(self, rest: Remainder, position: int, purpose: Purpose = "draft") -> Draw:
        """A draw of what is left, by the next of the points."""
        return Chance.draw_remaining(self, rest, position, purpose)

    def accept(self, ratio_num: float, ratio_den: float, position: int) -> tuple[bool, float]:
        """A test by the next of the points."""
        return Chance.accept(self, ratio_num, ratio_den, position)

    def shuffle(self, k: int, position: int) -> list[int]:
        """An order by the next of the points."""
        return Chance.shuffle(self, k, position)

    def uniform(self, position: int, purpose: Purpose) -> float:
        """The next number."""
        return self.points[self.fork([1 / len(self.points)] * len(self.points))]


def lattice_chance(points: Sequence[float]) -> type[LatticeChance]:
    """A Chance with uniforms that run through `points`."""
    return type("Lattice", (LatticeChance,), {"points": tuple(points)})


class FixedNoiseChance(EnumeratedChance):
    """Takes every outcome of draws, tests and orders.
    Bare uniforms, the noise of a drafter's scores, come from the shipped generator with the seed `noise`. A distribution
    that is exact for every noise is exact."""

    noise = 0

    def uniform(self, position: int, purpose: Purpose) -> float:
        """The next number."""
        self.seed = self.noise
        return Chance.uniform(self, position, purpose)


def outcomes(
    function: Callable[[EnumeratedChance], R],
    make: type[EnumeratedChance] = EnumeratedChance,
    most: int | None = None,
) -> list[tuple[float, R]]:
    """(weight, result) of every path of `function`, however many. Raises ValueError if there are more than `most`."""
    return limited(function, make, most)
