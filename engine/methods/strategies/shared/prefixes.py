"""Prefixes: a trie of texts under a grammar, with the share of each prefix's mass that may still end in a text of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.sampler import Sampler


@dataclass
class GrammarPrefix:
    """A text with a known next-token distribution.

    - ids: int64 [C], the tokens that may follow, ascending;  z: float [C], their logits;  total: the logarithm of the sum of
      exp of all logits of the vocabulary: ln p(v|u) = z - total
    - states: of the sampler's stages behind it;  below: place in `ids` -> number of the prefix with that token behind it
    - above: number of the prefix before it, -1: none
    """

    ids: Tensor
    z: Tensor
    total: float
    states: list[Any]
    above: int = -1
    below: dict[int, int] = field(default_factory=dict)


class GrammarPrefixes:
    """All prefixes by number (0: the empty one), each with ln c~(u).

    This is an upper bound of the logarithm of c(u), the probability that the model's continuation of u is allowed to its end.

    c~ = 1 for an unread prefix. For a known prefix, c~(u) is the sum over the allowed next tokens v of p(v|u) c~(uv). A text
    that has ended, or that the limit cuts, has c = 1. Values are logarithms, because behind 200 tokens of a grammar of rare
    words c is less than any double. A known prefix takes a logit for each token that may follow; equal sets of tokens share one
    tensor.

    texts: the number of drawn texts
    """

    def __init__(self) -> None:
        self.texts = 0
        self.every: list[GrammarPrefix] = []
        self.bounds: list[float] = []  # ln c~, by number
        self._sets: dict[bytes, Tensor] = {}

    def __len__(self) -> int:
        return len(self.every)

    def add(self, logits: Tensor, fits: Tensor, states: list[Any], above: int, place: int) -> int:
        """Add a prefix with its next-token `logits` (float [V], as used for draws), and return its number.

        `fits` (bool [V]) marks the allowed next tokens. The prefix is token number `place` of prefix `above`; -1: the empty
        one.
        """
        key = fits.cpu().numpy().tobytes()
        ids = self._sets.setdefault(key, fits.nonzero()[:, 0])
        number, total = len(self.every), float(logits.double().logsumexp(-1))
        self.every.append(GrammarPrefix(ids, logits[ids], total, states, above))
        self.bounds.append(0.0)
        if above >= 0:
            self.every[above].below[place] = number
        self.bounds[number] = float(self.weighted_log_probs(number).logsumexp(-1))
        return number

    def token_log_probs(self, number: int) -> Tensor:
        """float64 [C]: ln p(v|u) of the tokens v that may follow prefix u, which do not add up to 1."""
        prefix = self.every[number]
        return prefix.z.double() - prefix.total

    def weighted_log_probs(self, number: int) -> Tensor:
        """float64 [C]: ln p(v|u) c~(uv) of the tokens v that may follow prefix u."""
        logs, below = self.token_log_probs(number), self.every[number].below
        if below:
            bounds = logs.new_tensor([self.bounds[x] for x in below.values()])
            logs[torch.tensor([*below], device=logs.device)] += bounds
        return logs

    def update_bounds(self, number: int) -> None:
        """Compute c~ again for a prefix and all prefixes above it, the longest first."""
        while number >= 0:
            self.bounds[number] = float(self.weighted_log_probs(number).logsumexp(-1))
            number = self.every[number].above

    def find(self, above: int, place: int) -> int | None:
        """The number of the prefix with token number `place` behind prefix `above` (-1: the empty one); None if unknown."""
        if above >= 0:
            return self.every[above].below.get(place)
        if self.every:
            return 0
        return None

    def first_choice(self, most: int) -> list[tuple[int, float, float]]:
        """(token, its probability by the grammar alone, and with c~) for the likeliest tokens by the grammar, at most `most`.

        They are those of the first place with a choice, or of the last known prefix on the only path to it.
        """
        number = 0
        while len(self.every[number].ids) == 1 and (below := self.every[number].below):
            number = below[0]
        alone, weighed = self.token_log_probs(number).softmax(-1), self.weighted_log_probs(number).softmax(-1)
        best = alone.topk(min(most, len(alone))).indices
        ids = self.every[number].ids[best].tolist()
        return list(zip(ids, alone[best].tolist(), weighed[best].tolist(), strict=True))


def split_constraints(stages: list[Sampler], states: list[Any], logits: Tensor) -> tuple[Tensor, Tensor]:
    """The logits [V] after all stages that do not constrain, and bool [V]: the tokens that the constraining stages leave."""
    fits = torch.zeros_like(logits)
    for stage, state in zip(stages, states, strict=True):
        if stage.constrains:
            fits = stage.warp(fits, state)
        else:
            logits = stage.warp(logits, state)
    return logits, torch.isfinite(fits)
