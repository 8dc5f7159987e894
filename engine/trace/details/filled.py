"""Fill: what one pass over a canvas decided, and the arithmetic of its decision, for who makes it and for who checks it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from .explored import Explored
from .vetoed import Veto


@dataclass
class Fill:
    """One pass over a canvas: places behind the text that are filled in any order. All places are positions of the text.

    start:   position of the canvas's first place;  length: places that it has
    block:   [first, behind]: the places among which the pass decided
    open:    int32 [O], those of them that held no token before the pass, ascending
    candidate: int32 [O], the token that the sampler chose for each;  confidence: float32 [O], the model's probability of it,
             before the sampler, the mask token left out
    places:  those that were committed in this pass, ascending;  tokens: their tokens;  rules: why each was, in the selector's
             words: "scheduled", "final" (a filter finds it so), "best" (of all, whatever its confidence), "sure" (it reaches
             its bar), "near" (one that an anchor has lowered), "factor", "written" (as all are, by a selector that masks some
             again), "explored"
    count:   so many that rank first were committed whatever their confidence
    bars:    float32 [O], the confidence from which on a place was committed too; None: there was none
    order:   int32 [O], the rank of each open place, drawn by chance; None: they rank by confidence, of equal ones the first
    anchors: places whose confidence lowered the bars near them
    standins: of a picture's rows that begin before the row above them is whole: [position, token] of what the pass fed in the
             place of the cell before them, whose own token is fed once it is there;  cache is then "kept": what was settled was
             fed once, and is read from there on. `open` holds the cells that the pass drew, the others wait
    reopened: places of the block that are masked again behind the pass, ascending: what is written in a block stays once a pass
             leaves none; None: what is committed stays
    cache:   what the pass read of others: "none" (it fed all rows), "prefix" (entries left of the block) or "dual" (those on
             both sides of it);  stale: passes that were made since these entries were, 0: this pass fed all rows
    edge:    position behind the block that is to be full first, where others are filled beside it; None: there are none
    entropy: float32 [O], of the model's law at each open place, in bits, 0 at one that was explored; None: nobody asked for it
    explored: what the pass tried, where it read several canvases; the candidate at that place is the token that won, its
             confidence that of the pass before
    final:   float32 [O], how sure a trained filter was that each candidate is final; bars are 0 where that was enough, else 2
    cut:     position behind the last place that is left after the pass: what stands behind it is dropped; None: all stay
    vetoes:  what a grammar refused, those that were refused alone first; None: there is no grammar
    witness: a text of the grammar, from the canvas's first place on, that the canvas can still become behind the pass
    terminals: by name of each terminal of the grammar the ids of its tokens; None behind a canvas's first pass
    """

    start: int
    length: int
    block: list[int]
    open: np.ndarray
    candidate: np.ndarray
    confidence: np.ndarray
    places: list[int]
    tokens: list[int]
    rules: list[str]
    count: int
    bars: np.ndarray | None = None
    order: np.ndarray | None = None
    anchors: list[int] | None = None
    cache: str = "none"
    stale: int = 0
    reopened: list[int] | None = None
    edge: int | None = None
    entropy: np.ndarray | None = None
    explored: Explored | None = None
    standins: list[list[int]] | None = None
    final: np.ndarray | None = None
    cut: int | None = None
    vetoes: list[Veto] | None = None
    witness: list[int] | None = None
    terminals: dict[str, list[int]] | None = None

    @property
    def ids(self) -> list[int]:
        """All tokens that it names, but for those of the terminals."""
        tried = self.explored.ids if self.explored is not None else []
        return [
            *self.candidate.tolist(),
            *tried,
            *(x.token for x in self.vetoes or ()),
            *(self.witness or ()),
        ]

    @property
    def refused(self) -> set[int]:
        """The places that stay open since their tokens do not go together with those of others."""
        return {x.place for x in self.vetoes or () if x.together}

    @property
    def explored_at(self) -> int | None:
        """The index of the open place that was explored."""
        return None if self.explored is None else int(np.searchsorted(self.open, self.explored.place))


def scheduled(places: int, steps: int, passes: int) -> int:
    """How many of a block's `places` the pass behind `passes` others commits, where `steps` passes fill it: all the same, the
    first `places % steps` one more. No pass is without a commit: more steps than places are as many as places."""
    steps = min(steps, places)
    return places // steps + (passes < places % steps)


def ranked(confidence: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
    """int64 [O]: the open places by rank, as indices: by `order`, else the most confident first, of equal ones the first."""
    return np.argsort(-confidence if order is None else order, kind="stable")


def chosen(
    count: int, confidence: np.ndarray, bars: np.ndarray | None, order: np.ndarray | None
) -> np.ndarray:
    """bool [O]: which open places are committed: the `count` that rank first, and those that reach their bar."""
    taken = np.zeros(len(confidence), bool) if bars is None else confidence >= bars
    taken[ranked(confidence, order)[:count]] = True
    return taken


def factored(confidence: np.ndarray, factor: float) -> int:
    """The largest n for which (n + 1) (1 - c) < factor, c being the n-th largest confidence; at least 1."""
    c = np.sort(confidence.astype(np.float64))[::-1]
    fits = np.flatnonzero((np.arange(1, len(c) + 1) + 1) * (1 - c) < factor)
    return int(fits[-1]) + 1 if len(fits) else 1


def leapt(
    open: np.ndarray, confidence: np.ndarray, tau: float, relaxed: float, radius: int
) -> tuple[np.ndarray, np.ndarray]:
    """(int32 [A] anchors, float32 [O] bars): open places whose confidence reaches tau, and the bar of each of all: `relaxed`
    within `radius` of an anchor, else tau."""
    anchors = open[confidence >= np.float32(tau)]
    near = (abs(open[:, None] - anchors) <= radius).any(1)
    return anchors, np.where(near, np.float32(relaxed), np.float32(tau)).astype(np.float32)


def remasked(places: int, steps: int, passes: int) -> int:
    """How many of a block's `places` are masked again behind the pass that follows `passes` others, where `steps` passes fill
    it: floor(places (1 - t / steps)) for the pass t to come, at least 1; none behind the last."""
    steps, coming = min(steps, places), passes + 1
    return max(1, places * (steps - coming) // steps) if coming < steps else 0


def lowest(confidence: Mapping[int, float], count: int) -> list[int]:
    """The `count` places with the lowest confidence, ascending; of equal ones the first."""
    return sorted(sorted(confidence, key=lambda place: (confidence[place], place))[:count])


def passed(final: np.ndarray, accept: float) -> np.ndarray:
    """float32 [O]: the bars of places that a filter finds final: 0 where it is surer than `accept`, else 2."""
    return np.where(final > np.float32(accept), np.float32(0), np.float32(2))


def cut_at(
    open: np.ndarray, candidate: np.ndarray, confidence: np.ndarray, bars: np.ndarray, ends: Collection[int]
) -> int | None:
    """The position behind the place where the text is to end: the first open one whose candidate is one of `ends` and whose bar
    is 0, else the most confident of those, of equal ones the first; None: no candidate ends the text."""
    at = np.flatnonzero(np.isin(candidate, [*ends]))
    if not len(at):
        return None
    sure = at[bars[at] == 0]
    return int(open[sure[0] if len(sure) else at[confidence[at].argmax()]]) + 1
