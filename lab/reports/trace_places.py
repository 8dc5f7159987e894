"""Trace places: what recorded runs show of each place at which a guess was tried, for naming causes without the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.encoding.forks import header_at
from decodescope.engine.trace.records.events import Piece
from decodescope.engine.trace.records.parts import part_description
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.decision.path_places import DistributionPair, PathPlace

FITTED = 2000  # places at most that keep their distributions for a fit
TINY = 1e-12  # a probability that is as good as 0


class PlaceDistributions(NamedTuple):
    """What a trace shows of both distributions at one place, over the tokens that it shows of both.

    p: the target's probabilities;  logq: the draft's log-probabilities; both before a greedy sampler, else after the sampler
    rest: the draft's probability of all other tokens
    heat: the temperature that p has and the draft's has not, since it was chosen without chance. Then both are among the tokens
    shown of both alone, whose ratios a sampler that removes others leaves as they are
    """

    p: np.ndarray
    logq: np.ndarray
    rest: float
    heat: float = 1.0


class TriedPlace(NamedTuple):
    """One tried place. position: of its token in the text, the prompt included;  depth: in the draft, from 1

    guess, came: ids of the first guess and of the token that came;  passed: one of the guesses stayed
    overlap: sum of min(p, q), where the record shows both after the sampler;  p, q: of the guess (q before the sampler)
    rank: of the token that came in the draft's distribution, from 1. None: not recorded
    best: the draft's likeliest ids, likeliest first; none: not recorded
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
    best: tuple[int, ...] = ()


@dataclass(frozen=True)
class RunText:
    """The ids of a run's text, where the answer begins, and whether a chat template made the prompt."""

    ids: Sequence[int]
    start: int
    chat: bool


class PlaceLog:
    """Collects the tried places of runs while they go by, in order.

    classes: of each place, whether its token is in each of CLASSES;  proposals: the kinds of the drafts
    with_draft_tops: how many places have the draft's own distribution;  hidden: how many of these have no distribution of
    the target to hold it against;  heads: the kinds of heads that drafted
    """

    def __init__(self) -> None:
        self.rows: list[TriedPlace] = []
        self.texts: list[RunText] = []
        self.fits: list[PlaceDistributions] = []
        self.classes: list[tuple[bool, ...]] = []
        self.proposals: set[str] = set()
        self.with_draft_tops = 0
        self.hidden = 0
        self.heads: set[str] = set()

    def add(self, trace: Trace, step: Step, place: PathPlace, before: int) -> None:
        """Enter one place of a step. before: the id in front of its token"""
        guess, came = place.guesses[0], step.emitted[place.depth - 1]
        law, tops = place.law, step.draft_tops
        if step.draft is not None:
            self.proposals.add(step.draft.proposal)
        p = None if law is None or guess.token not in law.ids else float(law.p[law.ids.index(guess.token)])
        q, rank = guess.q, None
        best: tuple[int, ...] = ()
        row = None if tops is None else tops.row_of(place.node)
        shown: dict[int, float] = {}  # the draft's log-probabilities
        if tops is not None and row is not None:
            self.with_draft_tops += 1
            rank = int(tops.rank[row])
            best = tuple(int(x) for x in tops.ids[row] if x >= 0)
            shown = {int(x): float(y) for x, y in zip(tops.ids[row], tops.logp[row], strict=True) if x >= 0}
            if np.isfinite(tops.came[row]):
                shown[came] = float(tops.came[row])
            q = float(np.exp(shown[guess.token])) if guess.token in shown else q
        if law is not None and len(self.fits) < FITTED:
            self._keep_distributions(law, shown, *_target_sampler(trace, step))
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
                best,
            )
        )
        self.classes.append(_token_classes(_text(came, trace.pieces), _text(before, trace.pieces)))

    def _keep_distributions(
        self, law: DistributionPair, shown: dict[int, float], greedy: bool, heat: float | None
    ) -> None:
        """Keep both distributions of a place, if both can be had on the same side of the sampler. greedy, heat: of that"""
        if law.drawn:
            of_use = law.q > 0
            rest = max(0.0, 1 - float(law.q.sum()))
            self.fits.append(PlaceDistributions(law.p[of_use], np.log(law.q[of_use]), rest))
            return
        both = [(x, y) for x, y in zip(law.ids, law.p.tolist(), strict=True) if x in shown]
        p, logq = np.array([y for _, y in both]), np.array([shown[x] for x, _ in both])
        if greedy and shown:
            rest = max(0.0, 1 - float(np.exp(np.array([*shown.values()])).sum()))
            self.fits.append(PlaceDistributions(p, logq, rest))
        elif heat is not None and p.sum() > 0.5:
            of_use = p > 0
            logq = logq[of_use] - np.logaddexp.reduce(logq[of_use])
            self.fits.append(PlaceDistributions(p[of_use] / p.sum(), logq, 0.0, heat))
        elif heat is None and shown:
            self.hidden += 1

    def end_run(self, trace: Trace, ids: Sequence[int], start: int) -> None:
        """The run is over. ids: its whole text;  start: how many of them are the prompt's"""
        self.texts.append(RunText(tuple(ids), start, trace.header.chat))
        self.heads |= set(trace.header.model.get("head_fingerprints") or ())


def _target_sampler(trace: Trace, step: Step) -> tuple[bool, float | None]:
    """Whether the target's distribution is shown before the sampler, and else its temperature; None: it follows the text, or
    guidance chose, so that the ratio of two tokens is no longer the model's own."""
    sampler = part_description(header_at(trace.header, step.step), "sampler")
    heat = float(sampler.get("heat", 0.0))
    follows = step.sampler is not None or step.choices is not None
    return bool(sampler.get("greedy")), None if follows or heat <= 0 else heat


def raise_distribution(logq: np.ndarray, rest: float, powers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A distribution raised to some powers: probabilities [S, K] of the shown tokens and [S] of all others.

    logq: [K], log-probabilities of the shown ones;  rest: the probability of all others;  powers: [S]
    The others count as equally likely, each as likely as half of the last that is shown. So the result is an estimate.
    """
    mass = np.exp(powers[:, None] * logq)  # [S, K]
    rest = max(rest, TINY)
    others = max(1.0, rest / max(float(np.exp(logq.min())) / 2, TINY))
    tail = others * np.power(rest / others, powers)
    whole = mass.sum(1) + tail
    return mass / whole[:, None], tail / whole


CLASSES = ("digits", "tokens that are not ASCII", "tokens after line ends")


def _text(token: int, pieces: Mapping[int, Piece]) -> str:
    return join([token], pieces) if token in pieces else ""


def _token_classes(text: str, before: str) -> tuple[bool, ...]:
    return any("0" <= x <= "9" for x in text), any(ord(x) > 127 for x in text), before.endswith("\n")
