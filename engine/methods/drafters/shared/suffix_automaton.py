"""Suffix automaton of a growing text: the longest end of the text that stood in it before, and where it first stood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass
class _State:
    """Substrings that end at the same places. longest: of them; first: the earliest place (exclusive) where they end.

    following: token -> state of the substrings with it appended;  link: state of the longest suffix that ends at more places
    """

    following: dict[int, int]
    link: int
    longest: int
    first: int


class SuffixAutomaton:
    """All substrings of a text (Blumer et al. 1985). A token is entered in amortised constant time.

    length: tokens entered;  match: how many tokens at the text's end stood in it before, at an earlier place
    """

    def __init__(self) -> None:
        self._states = [_State({}, -1, 0, 0)]
        self._last = 0
        self._at = 0  # state of the longest end of the text that stood before
        self.match = 0
        self.length = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Bring the automaton to `tokens`, which must begin with the text entered so far."""
        for token in tokens[self.length :]:
            self._follow(token)
            self._enter(token)

    def place(self, wanted: int) -> int:
        """Where the matched end of the text first stood (exclusive).

        If that is less than `wanted` tokens before the text's end: where a shorter end first stood, the longest that is as far
        away, or else the shortest.
        """
        at = self._at
        while self._states[at].link > 0 and self.length - self._states[at].first < wanted:
            at = self._states[at].link
        return self._states[at].first

    def _follow(self, token: int) -> None:
        """Move to the longest suffix of the match that `token` has followed before."""
        while self._at > 0 and token not in self._states[self._at].following:
            self._at = self._states[self._at].link
            self.match = self._states[self._at].longest
        if token in self._states[self._at].following:
            self._at = self._states[self._at].following[token]
            self.match += 1

    def _enter(self, token: int) -> None:
        states = self._states
        self.length += 1
        new, at = len(states), self._last
        states.append(_State({}, 0, self.length, self.length))
        while at >= 0 and token not in states[at].following:
            states[at].following[token] = new
            at = states[at].link
        if at >= 0:
            other = states[at].following[token]
            if states[at].longest + 1 == states[other].longest:
                states[new].link = other
            else:
                clone = len(states)
                whole = states[other]
                states.append(replace(whole, following=dict(whole.following), longest=states[at].longest + 1))
                while at >= 0 and states[at].following.get(token) == other:
                    states[at].following[token] = clone
                    at = states[at].link
                whole.link = states[new].link = clone
        self._last = new
