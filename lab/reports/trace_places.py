"""Trace places: what recorded runs show of each place at which a guess was tried, for naming causes without the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.checks.step_probabilities import sampler_is_greedy
from decodescope.engine.trace.records.events import Piece
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.decision.path_places import DistributionPair, PathPlace

FITTED = 2000  # places at most that keep their distributions for a fit


class PlaceDistributions(NamedTuple):
    """What a trace shows of both distributions at one place, over the tokens that it shows of both.

    p: the target's probabilities;  logq: the draft's log-probabilities; both before a greedy sampler, else after the sampler
    rest: the draft's probability of all other tokens
    """

    p: np.ndarray
    logq: np.ndarray
    rest: float


class TriedPlace(NamedTuple):
    """One tried place. position: of its token in the text, the prompt included;  depth: in the draft, from 1

    guess, came: ids of the first guess and of the token that came;  passed: one of the guesses stayed
    overlap: sum of min(p, q), where the record shows both after the sampler;  p, q: of the guess (q before the sampler)
    rank: of the token that came in the draft's distribution, from 1. None: not recorded
    """

    run: int
    position: int
    depth: int
    guess: int
    came: int
    passed: bool
    overlap: float | None
    p: float | None
    q: float | None
    rank: int | None


@dataclass(frozen=True)
class RunText:
    """The ids of a run's text, where the answer begins, and whether a chat template made the prompt."""

    ids: Sequence[int]
    start: int
    chat: bool


class PlaceLog:
    """Collects the tried places of runs while they go by, in order.

    classes: of each place, whether its token is in each of CLASSES;  proposals: the kinds of the drafts
    with_draft_tops: how many places have the draft's own distribution
    """

    def __init__(self) -> None:
        self.rows: list[TriedPlace] = []
        self.texts: list[RunText] = []
        self.fits: list[PlaceDistributions] = []
        self.classes: list[tuple[bool, ...]] = []
        self.proposals: set[str] = set()
        self.with_draft_tops = 0

    def add(self, trace: Trace, step: Step, place: PathPlace, before: int) -> None:
        """Enter one place of a step. before: the id in front of its token"""
        guess, came = place.guesses[0], step.emitted[place.depth - 1]
        law, tops = place.law, step.draft_tops
        if step.draft is not None:
            self.proposals.add(step.draft.proposal)
        p = None if law is None or guess.token not in law.ids else float(law.p[law.ids.index(guess.token)])
        q, rank = guess.q, None
        row = None if tops is None else tops.row_of(place.node)
        shown: dict[int, float] = {}  # the draft's log-probabilities
        if tops is not None and row is not None:
            self.with_draft_tops += 1
            rank = int(tops.rank[row])
            shown = {int(x): float(y) for x, y in zip(tops.ids[row], tops.logp[row], strict=True) if x >= 0}
            if np.isfinite(tops.came[row]):
                shown[came] = float(tops.came[row])
            q = float(np.exp(shown[guess.token])) if guess.token in shown else q
        if law is not None and len(self.fits) < FITTED:
            self._keep_distributions(law, shown, sampler_is_greedy(trace.header, step.step))
        overlap = law.overlap if law is not None and law.drawn else None
        self.rows.append(
            TriedPlace(
                len(self.texts),
                step.n + place.depth - 1,
                place.depth,
                guess.token,
                came,
                place.passed,
                overlap,
                p,
                q,
                rank,
            )
        )
        self.classes.append(_token_classes(_text(came, trace.pieces), _text(before, trace.pieces)))

    def _keep_distributions(self, law: DistributionPair, shown: dict[int, float], greedy: bool) -> None:
        """Keep both distributions of a place, if both are recorded on the same side of the sampler."""
        if law.drawn:
            of_use = law.q > 0
            rest = max(0.0, 1 - float(law.q.sum()))
            self.fits.append(PlaceDistributions(law.p[of_use], np.log(law.q[of_use]), rest))
        elif greedy and shown:
            both = [(x, y) for x, y in zip(law.ids, law.p.tolist(), strict=True) if x in shown]
            logq = np.array([shown[x] for x, _ in both])
            rest = max(0.0, 1 - float(np.exp(np.array([*shown.values()])).sum()))
            self.fits.append(PlaceDistributions(np.array([y for _, y in both]), logq, rest))

    def end_run(self, trace: Trace, ids: Sequence[int], start: int) -> None:
        """The run is over. ids: its whole text;  start: how many of them are the prompt's"""
        self.texts.append(RunText(tuple(ids), start, trace.header.chat))


CLASSES = ("digits", "tokens that are not ASCII", "tokens after line ends")


def _text(token: int, pieces: Mapping[int, Piece]) -> str:
    return join([token], pieces) if token in pieces else ""


def _token_classes(text: str, before: str) -> tuple[bool, ...]:
    return any("0" <= x <= "9" for x in text), any(ord(x) > 127 for x in text), before.endswith("\n")
