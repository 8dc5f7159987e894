"""The target's distribution, computed a second time in plain Python.

Samplers follow their definitions, and texts are computed by multiplication."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

from .tables import Logits

NONE = -math.inf


def softmax(z: list[float]) -> list[float]:
    """Probabilities of logits z."""
    top = max(z)
    e = [math.exp(x - top) for x in z]
    return [x / math.fsum(e) for x in e]


def temperature(z: list[float], text: list[int], T: float) -> list[float]:
    """Logits divided by T; T = 0 is greedy."""
    return greedy_logits(z, text) if T == 0 else [x / T for x in z]


def greedy_logits(z: list[float], text: list[int]) -> list[float]:
    """Keep only the largest logit, of equal ones the first."""
    best = z.index(max(z))
    return [0.0 if x == best else NONE for x in range(len(z))]


def top_k(z: list[float], text: list[int], k: int) -> list[float]:
    """Keep only the k largest logits."""
    kept = sorted(range(len(z)), key=lambda x: -z[x])[:k]
    return [z[x] if x in kept else NONE for x in range(len(z))]


def top_p(z: list[float], text: list[int], p: float) -> list[float]:
    """Keep only the fewest tokens that have the mass p together."""
    law = softmax(z)
    mass = 0.0
    kept = set()
    for x in sorted(range(len(z)), key=lambda x: -law[x]):
        if mass < p:
            kept.add(x)
        mass += law[x]
    return [z[x] if x in kept else NONE for x in range(len(z))]


def repetition_penalty(z: list[float], text: list[int], penalty: float) -> list[float]:
    """Divide the logits of tokens in the text by the penalty; negative ones are multiplied."""
    penalised = [v / penalty if v > 0 else v * penalty for v in z]
    return [penalised[x] if x in text else v for x, v in enumerate(z)]


def mirostat_cut(z: list[float], mu: float) -> list[float]:
    """Keep the tokens with a surprise of at most mu bits, and always the likeliest one."""
    law = softmax(z)
    best = law.index(max(law))
    return [v if x == best or (law[x] > 0 and -math.log2(law[x]) <= mu) else NONE for x, v in enumerate(z)]


@dataclass
class Warp:
    """How logits become a distribution: warps are applied in order, each a function of (logits, text so far).

    mirostat: (target, rate) of a Mirostat cut that comes last; its mu is found by replaying the text
    """

    stages: list[Callable[[list[float], list[int]], list[float]]] = field(default_factory=list)
    mirostat: tuple[float, float] | None = None

    def next_distribution(self, logits: Logits, text: list[int], prompt: int) -> list[float]:
        """P(next | text) for every id."""
        z = self._apply_stages(logits, text)
        if self.mirostat is None:
            return softmax(z)
        tau, rate = self.mirostat
        mu = 2 * tau
        for end in range(prompt, len(text)):
            surprise = -math.log2(softmax(self._apply_stages(logits, text[:end]))[text[end]])
            mu = min(max(mu - rate * (surprise - tau), 0.0), 4 * tau)
        return softmax(mirostat_cut(z, mu))

    def _apply_stages(self, logits: Logits, text: list[int]) -> list[float]:
        z = logits(tuple(enumerate(text))).tolist()
        for stage in self.stages:
            z = stage(z, text)
        return z


def text_distribution(
    logits: Logits, warp: Warp, prompt: list[int], length: int, vocab: int, stop: frozenset[int] = frozenset()
) -> dict[tuple[int, ...], float]:
    """P(text) of every text of `length` tokens, or of fewer with a stop id at the end; impossible ones included, as 0."""
    laws: dict[tuple[int, ...], list[float]] = {}

    def p(head: tuple[int, ...], x: int) -> float:
        if head not in laws:
            laws[head] = warp.next_distribution(logits, [*prompt, *head], len(prompt))
        return laws[head][x]

    law: dict[tuple[int, ...], float] = {}
    for n in range(1, length + 1):
        for text in product(range(vocab), repeat=n):
            whole = n == length or text[-1] in stop
            if whole and not stop.intersection(text[:-1]):
                law[text] = 1.0
                for i, x in enumerate(text):
                    law[text] *= p(text[:i], x)
                    if law[text] == 0:  # an impossible token has no distribution to follow
                        break
    return law
