"""Repeats: where a text repeats an earlier part of itself, how far, and how much of it is repeated."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..records.events import Step

GRAM = 4  # equal tokens needed before anything counts as a repeat


@dataclass(frozen=True)
class Repeat:
    """A stretch of a text that occurs in it a second time.

    at:     where it begins, as an index of the text;  period: its distance from the first occurrence
    lasts:  its tokens; if they are `period` or more, the text loops
    ending: True if it goes on to the end of the text
    """

    at: int
    period: int
    lasts: int
    ending: bool

    @property
    def loop(self) -> bool:
        """True if a whole period is repeated, so that what follows is a second round or a further one."""
        return self.lasts >= self.period


class RepeatTracker:
    """A text as it grows, and the stretch that it is in."""

    def __init__(self, n: int = GRAM):
        self.text: list[Hashable] = []
        self.now: Repeat | None = None
        self._n = n
        self._seen: dict[tuple[Hashable, ...], int] = {}  # n-gram -> where it began last

    def take(self, token: Hashable) -> Repeat | None:
        """Add a token to the text; return the stretch that it belongs to, up to here. The stretch's first n-gram occurs
        earlier, its latest earlier occurrence is the match, and both agree since then. A stretch inside another is not
        counted."""
        self.text.append(token)
        last, at = len(self.text) - 1, len(self.text) - self._n
        like = None
        if at >= 0:
            gram = tuple(self.text[at:])
            like, self._seen[gram] = self._seen.get(gram), at
        now = self.now
        if now is not None and token == self.text[last - now.period]:
            self.now = replace(now, lasts=now.lasts + 1)
        else:
            self.now = None if like is None else Repeat(at, at - like, self._n, True)
        return self.now


def find_repeats(text: Iterable[Hashable], n: int = GRAM) -> Iterator[Repeat]:
    """Every stretch of a text, whole, in order."""
    following = RepeatTracker(n)
    before: Repeat | None = None
    for token in text:
        now = following.take(token)
        if before is not None and (now is None or now.at != before.at):
            yield replace(before, ending=False)
        before = now
    if before is not None:
        yield before


def repeated_share(text: Sequence[Hashable], n: int = GRAM) -> float:
    """The share of a text's n-grams that occur earlier in it; 0 if it has none."""
    grams = [tuple(text[at : at + n]) for at in range(len(text) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


@dataclass(frozen=True)
class LoopRound:
    """One time that a text goes through its loop. n: which, from 1; tp, ip, wr: the mean probability of a token, the share of
    tokens more likely than in the first round, and the share that were the likeliest; None if the record lacks it"""

    n: int
    tp: float | None
    ip: float | None
    wr: float | None


def loop_rounds(
    loop: Repeat, laws: Sequence[tuple[float, bool] | None], first: int = 1
) -> Iterator[LoopRound]:
    """The complete rounds of a loop, from number `first` on. laws: for each token of the text its probability when it was
    written, and whether none was likelier; None if unknown."""
    begin = loop.at - loop.period
    start = laws[begin : begin + loop.period]
    for n in range(first, 2 + loop.lasts // loop.period if loop.loop else 1):
        pairs = list(zip(laws[begin + (n - 1) * loop.period :][: loop.period], start, strict=False))
        known = [(now, then) for now, then in pairs if now is not None and then is not None]
        if len(known) < loop.period:
            yield LoopRound(n, None, None, None)
            continue
        p = [now[0] for now, _ in known]
        more = [now[0] > then[0] for now, then in known]
        yield LoopRound(n, sum(p) / len(p), sum(more) / len(p), sum(now[1] for now, _ in known) / len(p))


def emitted_probabilities(step: Step) -> list[tuple[float, bool] | None]:
    """For each token that a step wrote, its probability in the recorded distribution, and whether none is likelier."""
    places = range(-1, len(step.emitted) - 1) if step.path is None else [-1, *step.path]
    known = (
        {}
        if step.tops is None
        else {int(x): row for row, x in reversed([*enumerate(step.tops.places.tolist())])}
    )
    laws: list[tuple[float, bool] | None] = []
    for token, place in zip(step.emitted, places, strict=False):
        row = known.get(place)
        if step.tops is None or row is None:
            laws.append(None)
            continue
        ids, p = step.tops.ids[row], step.tops.p[row]
        here = p[ids == token]
        laws.append((float(here[0]), bool(here[0] >= p.max())) if len(here) else None)
    return laws + [None] * (len(step.emitted) - len(laws))
