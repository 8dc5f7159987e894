"""Frequent continuations: what follows a match in a text, by how often it does. A counted suffix tree, read from arrays."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from decodescope.engine.decoding.values.draft import ROOT


class Continuation(NamedTuple):
    """What may be drafted behind a match.

    tokens, parents, probabilities: per node, parents first: its id, its parent (-1: the match), and the estimated probability
    that the path to it follows the match
    """

    tokens: list[int]
    parents: list[int]
    probabilities: list[float]

    @property
    def score(self) -> float:
        """The expected number of accepted tokens, if the estimates hold."""
        return sum(self.probabilities)


class Match(NamedTuple):
    """The places of a body of ids behind which a suffix stands: a node of its suffix tree.

    ids: int [n], a negative id ends a document, and the last one is negative;  ends: int [P], places behind the suffix
    """

    ids: np.ndarray
    ends: np.ndarray

    def best_path(self, length: int, least: float) -> Continuation:
        """At most `length` tokens, each the most frequent one after the last, while the path has probability `least`."""
        tokens: list[int] = []
        probabilities: list[float] = []
        ends, probability = self.ends, 1.0
        while len(tokens) < length and len(ends):
            if len(ends) == 1:  # one place: all that follows it
                rest = self.ids[ends[0] : ends[0] + length - len(tokens)]
                rest = rest[: int((rest < 0).argmax())] if (rest < 0).any() else rest
                tokens += rest.tolist()
                probabilities += [probability] * len(rest)
                break
            first = next(Match(self.ids, ends).children(), None)
            if first is None or probability * first[1] / len(ends) < least:
                break
            probability *= first[1] / len(ends)
            tokens.append(first[0])
            probabilities.append(probability)
            ends = first[2]
        return Continuation(tokens, list(range(ROOT, len(tokens) - 1)), probabilities)

    def best_tree(self, nodes: int, depth: int, least: float) -> Continuation:
        """At most `nodes` tokens in at most `depth` levels, the most probable paths first, none below `least`."""
        tree = Continuation([], [], [])
        turn = count()
        heap: list[
            tuple[float, int, int, int, int, np.ndarray]
        ] = []  # (-probability, turn, level, token, parent, ends)

        def offer(ends: np.ndarray, probability: float, level: int, parent: int) -> None:
            for token, times, behind in Match(self.ids, ends).children() if level <= depth else ():
                if probability * times / len(ends) < least:
                    break
                heapq.heappush(
                    heap, (-probability * times / len(ends), next(turn), level, token, parent, behind)
                )

        offer(self.ends, 1.0, 1, ROOT)
        while heap and len(tree.tokens) < nodes:
            negative, _, level, token, parent, behind = heapq.heappop(heap)
            tree.tokens.append(token)
            tree.parents.append(parent)
            tree.probabilities.append(-negative)
            offer(behind, -negative, level + 1, len(tree.tokens) - 1)
        return tree

    def children(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """(token, how often it follows, places behind it), the most frequent first; of equals the first to be so frequent."""
        after = self.ids[self.ends]
        ends, after = self.ends[after >= 0], after[after >= 0]
        if len(after) == 0:
            return
        tokens, of, times = np.unique(after, return_inverse=True, return_counts=True)
        last = np.zeros(len(tokens), dtype=np.int64)
        np.maximum.at(last, of, ends)
        for i in np.lexsort((last, -times)).tolist():
            yield int(tokens[i]), int(times[i]), ends[of == i] + 1


class GrowingText:
    """A growing text as an array of ids, and the places where its own suffixes stand in it."""

    def __init__(self) -> None:
        self._ids = np.full(256, -1, dtype=np.int64)
        self._length = 0

    def extend(self, tokens: list[int]) -> None:
        """Bring the array to `tokens`, which must begin with the text entered so far."""
        n = len(tokens)
        while n >= len(self._ids):
            self._ids = np.concatenate([self._ids, np.full(len(self._ids), -1, dtype=np.int64)])
        self._ids[self._length : n] = tokens[self._length :]
        self._length = n

    def matches(self, longest: int) -> Iterator[Match]:
        """Per length from 1 to `longest`, all places where the suffix stands, with its own end, while there is another."""
        n = self._length
        ends = np.arange(1, n + 1)
        for m in range(1, min(longest, n - 1) + 1):
            ends = ends[ends >= m]
            ends = ends[self._ids[ends - m] == self._ids[n - m]]
            if len(ends) < 2:
                return
            yield Match(self._ids, ends)
