"""The n-grams of a growing text: where they occurred, and how often each token followed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SuffixIndex:
    """For every n up to `longest`, the places at which each n-gram ended; each token is entered once, O(longest)."""

    def __init__(self, longest: int):
        self.longest = longest
        self.length = 0
        self._ends: list[dict[tuple[int, ...], list[int]]] = [{} for _ in range(longest + 1)]

    def extend(self, tokens: Sequence[int]) -> None:
        """Bring the index to `tokens`, which must begin with the text entered so far."""
        for end in range(self.length + 1, len(tokens) + 1):
            for n in range(1, min(self.longest, end) + 1):
                self._ends[n].setdefault(tuple(tokens[end - n : end]), []).append(end)
        self.length = len(tokens)

    def ends(self, ngram: Sequence[int]) -> Sequence[int]:
        """Where 1 to `longest` tokens end in the text (exclusive ends, ascending): the index's own list, no copy."""
        return self._ends[len(ngram)].get(tuple(ngram), ())


class Follower(NamedTuple):
    """The token that followed a context most often, its count, and the order: the context's length plus one."""

    token: int
    times: int
    order: int


class NgramCounts:
    """Counts of the n-grams of orders 2 to `longest` in a growing text; each token is counted once, O(longest).

    counts: context of 1 to longest - 1 tokens -> {token that followed: how often}

    The most frequent follower is kept with the counts; of equally frequent ones, the one counted last.
    """

    def __init__(self, longest: int):
        self.longest = longest
        self.length = 0
        self.counts: dict[tuple[int, ...], dict[int, int]] = {}
        self._best: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Count up to `tokens`, which must begin with the text counted so far."""
        for at in range(self.length, len(tokens)):
            token = tokens[at]
            for n in range(1, min(self.longest - 1, at) + 1):
                context = tuple(tokens[at - n : at])
                seen = self.counts.setdefault(context, {})
                seen[token] = seen.get(token, 0) + 1
                if seen[token] >= seen[self._best.setdefault(context, token)]:
                    self._best[context] = token
        self.length = len(tokens)

    def top_follower(self, context: Sequence[int]) -> Follower | None:
        """The most frequent follower of the longest known suffix of `context`; None if no suffix has one."""
        for n in range(min(self.longest - 1, len(context)), 0, -1):
            suffix = tuple(context[-n:])
            if suffix in self._best:
                token = self._best[suffix]
                return Follower(token, self.counts[suffix][token], n + 1)
        return None
