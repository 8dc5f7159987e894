"""Chance: the one object through which all randomness passes, so that it can be recorded, replayed and enumerated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

Purpose = Literal["token", "accept", "draft", "shuffle", "init"]
_PURPOSES: dict[str, int] = {"token": 1, "accept": 2, "draft": 3, "shuffle": 4, "init": 5}
_MASK = (1 << 64) - 1
LITTLE = 2.0**-20  # of a sum in doubles: where no more is left, rounding has taken a part in 2**32 of it
Drawn = tuple[Tensor, list[int]]  # a distribution, float [V], and the tokens removed from it before a draw


class Draw(NamedTuple):
    """A drawn token, its uniform, and the interval [low, high) of the cumulative distribution that contains the uniform."""

    token: int
    u: float
    low: float
    high: float


class Chance:
    """Uniforms from a counter, keyed by (seed, position, purpose, index): there is no stream with a state to keep in step.

    `position` is the position of the token that the decision is about. The index counts the uses of a (position,
    purpose) pair, so a place that is drafted twice is drawn afresh. The token that a method settles for at a
    position is the first `token` draw there: two methods with one seed share it (common random numbers).
    """

    def __init__(self, seed: int):
        self.seed = seed
        self._uses: dict[tuple[int, int], int] = {}
        self._words: dict[tuple[int, int, int], int] = {}  # what seed, position and purpose were mixed to

    def uniform(self, position: int, purpose: Purpose) -> float:
        """The next uniform of [0, 1) for `purpose` at `position`; a double with 53 random bits."""
        key = (position, _PURPOSES[purpose])
        index = self._uses.get(key, 0)
        self._uses[key] = index + 1
        word = self._words.get((self.seed, *key))
        if word is None:
            word = _mix_bits(
                _mix_bits(_mix_bits(self.seed & _MASK) ^ _key_word(position)) ^ _key_word(key[1])
            )
            self._words[(self.seed, *key)] = word
        return (_mix_bits(word ^ _key_word(index)) >> 11) * 2.0**-53

    def draw(self, p: Tensor, position: int, purpose: Purpose = "token") -> Draw:
        """Draw a token from p (float [V], non-negative, not all zero) by inverse CDF from one uniform."""
        return invert_cdf(p, self.uniform(position, purpose))

    def draw_rows(self, p: Tensor, positions: Sequence[int], purpose: Purpose = "token") -> list[Draw]:
        """The same for each row of p (float [R, V]) at its own position; the rows' sums are computed together."""
        return [
            rest.draw(self.uniform(at, purpose)) for rest, at in zip(remainders(p), positions, strict=True)
        ]

    def accept(self, ratio_num: float, ratio_den: float, position: int) -> tuple[bool, float]:
        """Accept with probability min(1, num / den), decided in doubles as `u * den < num`; return the verdict and u."""
        u = self.uniform(position, "accept")
        return u * ratio_den < ratio_num, u

    def draw_remaining(self, rest: Remainder, position: int, purpose: Purpose = "draft") -> Draw:
        """Draw a token from the rest of a distribution, without removing it."""
        return rest.draw(self.uniform(position, purpose))

    def draw_distinct(self, rest: Remainder, k: int, position: int, purpose: Purpose = "draft") -> list[Draw]:
        """Up to k different tokens, each drawn from what the earlier ones left of a distribution. All but the last are then
        removed from it. Fewer, if it has fewer tokens."""
        draws = [self.draw_remaining(rest, position, purpose)]
        while len(draws) < k:
            rest.take(draws[-1].token)
            if not rest.total > 0:
                break
            draws.append(self.draw_remaining(rest, position, purpose))
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
            self._words = {}

    def copy(self) -> Chance:
        """An independent object with the same future."""
        twin = type(self)(self.seed)
        twin._uses = dict(self._uses)
        return twin


class Remainder:
    """The probabilities of the tokens that were not removed from a distribution, in doubles, for draws one after the other.

    law:  float [V], as it came, and p the same as an array;  taken: the tokens that were removed, in order
    sums: [V], cumulative, not normalised, in doubles; they change with `take`
    """

    def __init__(self, law: Tensor, p: np.ndarray, sums: np.ndarray):
        self.law = law
        self.p = p
        self.sums = sums
        self._summed = sums[-1]
        self.taken: list[int] = []

    @property
    def probabilities(self) -> np.ndarray:
        """float64 [V]: the probabilities of what is left, not normalised."""
        rest = self.p.astype(np.float64)
        rest[self.taken] = 0.0
        return rest

    @property
    def total(self) -> float:
        """The sum of all that is left; 0: nothing is."""
        return float(self.sums[-1])

    def draw(self, u: float) -> Draw:
        """The token with the interval of the cumulative distribution that holds u, lowest id first."""
        sums, total = self.sums, float(self.sums[-1])
        token = int(sums.searchsorted(u * total, "right"))
        if (
            token == len(sums) or token in self.taken or not self.p[token] > 0
        ):  # rounded onto the edge of one that has nothing
            there = self.probabilities.nonzero()[0]
            token = int(there[min(int(there.searchsorted(token)), len(there) - 1)])
        low = float(sums[token - 1]) if token else 0.0
        return Draw(token, u, low / total, float(sums[token]) / total)

    def take(self, token: int) -> None:
        """Take `token` out."""
        share = self.p[token]
        self.taken.append(token)
        if self.sums[-1] - share > LITTLE * self._summed:
            self.sums[token:] -= share
        else:  # the rest is small compared with what rounding may have taken: sum it again
            # numpy's takes twice as long
            self.sums = torch.as_tensor(self.probabilities, device="cpu").cumsum(0).numpy()
            self._summed = self.sums[-1]


def remainders(laws: Tensor) -> list[Remainder]:
    """Each row of laws (float [R, V], non-negative, not all zero), with nothing removed; one operation for all."""
    sums = laws.cumsum(1, dtype=torch.float64)
    return [Remainder(*row) for row in zip(laws, laws.cpu().numpy(), sums.cpu().numpy(), strict=True)]


def remaining_distributions(laws: Sequence[Drawn]) -> Tensor:
    """float [N, V]: each distribution without the tokens that were removed from it, normalised."""
    q = torch.stack([law for law, _ in laws])
    gone = [(i, token) for i, (_, taken) in enumerate(laws) for token in taken]
    if not gone:
        return q
    row, token = torch.tensor(gone, device=q.device).T
    q[row, token] = 0.0
    return q.div_(q.sum(1, keepdim=True))


def invert_cdf(p: Tensor, u: float) -> Draw:
    """The token with the interval of the cumulative distribution of p [V] that holds u; summed in doubles, lowest id first.
    torch computes the sums, because it adds fast. numpy reads single numbers, in a fifth of the time."""
    sums = p.cumsum(0, dtype=torch.float64).cpu().numpy()
    total = float(sums[-1])
    token = int(sums.searchsorted(u * total, "right"))
    if token == len(sums):  # the uniform rounds onto the end: take the last token that has probability
        token = int(sums.searchsorted(total))
    low = float(sums[token - 1]) if token else 0.0
    return Draw(token, u, low / total, float(sums[token]) / total)


def keyed_uniforms(seed: int, *keys: Tensor) -> Tensor:
    """Uniforms of [0, 1) for many keys at once, without a state: float64, of the shape that `keys` (int64) broadcast to.

    A number depends on the seed and on its own keys alone, so a replayed run draws the same again.
    """
    word = torch.tensor(_as_signed(_mix_bits(seed & _MASK)), device=keys[0].device)
    for key in keys:
        word = _mix_words(word ^ _mix_words(key))
    return ((word >> 11) & ((1 << 53) - 1)).double() * 2.0**-53


def _mix_words(x: Tensor) -> Tensor:
    """`_mix_bits` of every number of x (int64, whose products wrap around)."""
    x = x + _as_signed(0x9E3779B97F4A7C15)
    x = (x ^ ((x >> 30) & (_MASK >> 30))) * _as_signed(0xBF58476D1CE4E5B9)
    x = (x ^ ((x >> 27) & (_MASK >> 27))) * _as_signed(0x94D049BB133111EB)
    return x ^ ((x >> 31) & (_MASK >> 31))


def _as_signed(word: int) -> int:
    """A word of 64 bits as the int64 with the same bits."""
    return word - (1 << 64) if word >> 63 else word


def _key_word(part: int) -> int:
    """A part of a key as a word of 64 bits."""
    return (part * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & _MASK


def _mix_bits(x: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words that scatters every bit."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
