"""Repeats: where a text goes back to what stands in it already, how far, and how much of it is said again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

GRAM = 4  # tokens that have to be the same before anything counts as said again


@dataclass(frozen=True)
class Repeat:
    """A stretch of a text that stands in it a second time.

    at:     where it begins, as an index of the text;  period: how far behind its like
    lasts:  tokens of it; where they are `period` or more the text goes round
    ending: whether it goes on to the end of the text
    """

    at: int
    period: int
    lasts: int
    ending: bool

    @property
    def loop(self) -> bool:
        """Whether a whole period is said again, so that what follows is a second round or a further one."""
        return self.lasts >= self.period


def repeats(text: Sequence[Hashable], n: int = GRAM) -> Iterator[Repeat]:
    """Every stretch that begins with an n-gram which stands further in front, the latest of those being its like, and goes on
    for as long as both agree; in order. What lies within one is no other."""
    seen: dict[tuple[Hashable, ...], int] = {}
    inside = 0  # n-grams that begin before this are part of the last stretch
    for at in range(len(text) - n + 1):
        gram = tuple(text[at : at + n])
        like, seen[gram] = seen.get(gram), at
        if like is None or at < inside:
            continue
        end = at + n
        while end < len(text) and text[end] == text[end - (at - like)]:
            end += 1
        inside = end - n + 1
        yield Repeat(at, at - like, end - at, end == len(text))


def said_again(text: Sequence[Hashable], n: int = GRAM) -> float:
    """The share of a text's n-grams that stand further in front already; 0 where it has none."""
    grams = [tuple(text[at : at + n]) for at in range(len(text) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
