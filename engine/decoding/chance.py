"""Chance: the one object through which all randomness passes, so that it can be recorded, replayed and enumerated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Purpose = Literal["token", "accept", "draft", "shuffle", "init"]
_PURPOSES: dict[str, int] = {"token": 1, "accept": 2, "draft": 3, "shuffle": 4, "init": 5}
_MASK = (1 << 64) - 1


class Draw(NamedTuple):
    """A drawn token, its uniform, and the interval [low, high) of the cumulative law that the uniform fell into."""

    token: int
    u: float
    low: float
    high: float


class Chance:
    """Uniforms from a counter, keyed by (seed, position, purpose, index): no stream whose state must be kept in step.

    `position` is the position of the token that the decision is about. The index counts the uses of a (position,
    purpose) pair, so that a place that is drafted twice is drawn afresh. The token that a method settles for at a
    position is the first `token` draw there: two methods with one seed share it (common random numbers).
    """

    def __init__(self, seed: int):
        self.seed = seed
        self._uses: dict[tuple[int, int], int] = {}

    def uniform(self, position: int, purpose: Purpose) -> float:
        """The next uniform of [0, 1) for `purpose` at `position`; a double with 53 random bits."""
        key = (position, _PURPOSES[purpose])
        index = self._uses.get(key, 0)
        self._uses[key] = index + 1
        x = _mix(self.seed & _MASK)
        for part in (position, key[1], index):
            x = _mix(x ^ ((part * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & _MASK))
        return (x >> 11) * 2.0**-53

    def draw(self, p: Tensor, position: int, purpose: Purpose = "token") -> Draw:
        """Draw a token from p (float [V], non-negative, not all zero) by inverse CDF from one uniform."""
        return invert(p, self.uniform(position, purpose))

    def draws(self, p: Tensor, positions: Sequence[int], purpose: Purpose = "token") -> list[Draw]:
        """The same for each row of p (float [R, V]) at its own position; the rows' sums are worked out together."""
        cdf = p.double().cumsum(1)
        return [_found(p[i], cdf[i], self.uniform(at, purpose)) for i, at in enumerate(positions)]

    def accept(self, ratio_num: float, ratio_den: float, position: int) -> tuple[bool, float]:
        """Accept with probability min(1, num / den), decided in doubles as `u * den < num`; return the verdict and u."""
        u = self.uniform(position, "accept")
        return u * ratio_den < ratio_num, u

    def draw_without(self, p: Tensor, k: int, position: int, purpose: Purpose = "draft") -> list[tuple[Draw, Tensor]]:
        """Up to k different tokens, each drawn from what p (float [V]) leaves of the others.

        Returns (draw, law) in draw order; law [V] is normalised. Fewer than k where p has fewer tokens.
        """
        draws: list[tuple[Draw, Tensor]] = []
        law = p / p.sum()
        for _ in range(k):
            drawn = self.draw(law, position, purpose)
            draws.append((drawn, law))
            rest = law.clone()
            rest[drawn.token] = 0
            total = rest.sum()
            if not total > 0:
                break
            law = rest / total
        return draws

    def shuffle(self, k: int, position: int) -> list[int]:
        """A random order of range(k), all orders equally likely (Fisher-Yates)."""
        order = list(range(k))
        for i in range(k - 1, 0, -1):
            j = int(self.uniform(position, "shuffle") * (i + 1))
            order[i], order[j] = order[j], order[i]
        return order

    def forget(self, before: int) -> None:
        """Drop the counters of positions < `before`, which will not be drawn at again."""
        if len(self._uses) > 4096:
            self._uses = {key: n for key, n in self._uses.items() if key[0] >= before}

    def copy(self) -> Chance:
        """An independent object with the same future."""
        twin = type(self)(self.seed)
        twin._uses = dict(self._uses)
        return twin


def invert(p: Tensor, u: float) -> Draw:
    """The token whose interval of the cumulative law of p [V] holds u; summed in doubles, lowest id first."""
    return _found(p, p.double().cumsum(0), u)


def _found(p: Tensor, cdf: Tensor, u: float) -> Draw:
    """The same, cdf [V] being the sums of p."""
    total = float(cdf[-1])
    token = min(int(torch.searchsorted(cdf, u * total, right=True)), len(cdf) - 1)
    high = float(cdf[token])
    while not float(p[token]) > 0:  # a uniform that rounds onto the end of the law lands on a token that has none
        token -= 1
        high = float(cdf[token])
    low = float(cdf[token - 1]) if token else 0.0
    return Draw(token, u, low / total, high / total)


def _mix(x: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words that scatters every bit."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
