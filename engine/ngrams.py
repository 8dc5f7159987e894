"""Suffix index: where in a growing text its last n tokens stood before."""

from __future__ import annotations


class SuffixIndex:
    """For every n up to `longest`, the places at which each n-gram ended; each token is entered once, O(longest)."""

    def __init__(self, longest: int):
        self.longest = longest
        self.tokens: list[int] = []
        self._ends: list[dict[tuple[int, ...], list[int]]] = [{} for _ in range(longest + 1)]

    def extend(self, tokens: list[int]) -> None:
        """Bring the index to `tokens`, which must begin with the text entered so far."""
        for end in range(len(self.tokens) + 1, len(tokens) + 1):
            for n in range(1, min(self.longest, end) + 1):
                self._ends[n].setdefault(tuple(tokens[end - n : end]), []).append(end)
        self.tokens.extend(tokens[len(self.tokens) :])

    def earlier(self, n: int) -> list[int]:
        """Where the last n tokens ended before (exclusive ends, ascending); the suffix itself is not among them."""
        if n > len(self.tokens):
            return []
        return self._ends[n].get(tuple(self.tokens[-n:]), [])[:-1]
