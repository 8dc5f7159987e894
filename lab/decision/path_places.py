"""Path places: the places of a draft at which its path was decided, and the guesses that were tried there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from decodescope.engine.trace import Header, Step
from decodescope.engine.trace.checks.decisions import node_paths, step_trials
from decodescope.engine.trace.records.events import Tops

ROOT = -1
SURE = 1e-4  # tops are float32: a smaller sum is rounding


@dataclass(frozen=True)
class TriedGuess:
    """A drafted token that was tried at a place.
    rank: among those tried there, from 0, in draw order; q: the probability that it was drawn with (None: chosen without
    chance); p: the target's (None: exact matching, which uses no probabilities)."""

    node: int
    token: int
    rank: int
    q: float | None
    p: float | None
    ok: bool


@dataclass(frozen=True)
class PathPlace:
    """A place on the path at which guesses were tried. depth: of these guesses, from 1; node: the place, -1 the root
    passed: whether the path continued;  law: what the record has of both distributions here
    """

    depth: int
    node: int
    passed: bool
    guesses: tuple[TriedGuess, ...]
    law: DistributionPair | None


@dataclass(frozen=True)
class DistributionPair:
    """Target's distribution p and draft's distribution q at one place: the shown tokens and sums over the rest.
    entropy: of p, in nats"""

    ids: list[int]
    p: np.ndarray  # float64 [K]
    q: np.ndarray
    over: float  # sum of max(0, p - q) over the tokens that are not shown
    drawn: bool  # whether q is a distribution at all
    entropy: float

    @property
    def overlap(self) -> float:
        """The chance that a token drawn from q is accepted by the lossless rule: sum of min(p, q)."""
        return max(0.0, 1.0 - float(np.maximum(self.p - self.q, 0).sum()) - self.over)

    @property
    def agree(self) -> bool:
        """Whether both distributions have the same most likely token."""
        return int(self.p.argmax()) == int(self.q.argmax())

    def second_guess_chance(self, token: int) -> float:
        """A lower bound of the chance that a second guess is accepted after the lossless rule rejected `token`.
        The second guess is drawn from q without `token`. It is a lower bound, since tokens that are not shown add nothing."""
        kept = np.array([x != token for x in self.ids])
        gone, owed = float(self.q[~kept].sum()), 1.0 - self.overlap
        if gone >= 1.0 - SURE or owed <= SURE:
            return 0.0
        return float(np.minimum(np.maximum(self.p - self.q, 0) / owed, self.q / (1 - gone))[kept].sum())


def path_places(step: Step, header: Header) -> Iterator[PathPlace]:
    """The places on the path of `step` at which its acceptance rule tried a guess, from the root down.

    A step cut off by the end of the text yields nothing, because its decision is not in the text. Nodes that were tried off the
    path are left out (a rule that looks for the longest path follows every branch). Auxiliary nodes (passengers), which are
    never tried, are left out too. Where the last success settles all, a guess counts as accepted if it is in the path. Copies
    of a place count as one, where the rule tries them as one.
    """
    draft, trials = step.draft, step.trials
    if draft is None or trials is None or step.extra is None:
        return
    tests = step_trials(header, step)
    settled = "walk" if tests is None else tests.path
    path = step.path or []
    key: list[object] = [*node_paths(draft)] if settled == "copies" else list(range(len(draft.tokens)))
    under: dict[object, list[int]] = {}
    for i, node in enumerate(trials.node):
        parent = draft.parents[node]
        under.setdefault(ROOT if parent == ROOT else key[parent], []).append(i)
    exact = all(u is None for u in trials.u) and set(trials.p) <= {0.0, 1.0}
    for depth, place in enumerate([ROOT, *path], 1):
        guesses = []
        for rank, i in enumerate(under.get(ROOT if place == ROOT else key[place], [])):
            node = trials.node[i]
            q = (
                draft.q[node]
                if draft.proposal != "onehot" and (draft.u is None or draft.u[node] is not None)
                else None
            )
            ok = node in path if settled == "last" else trials.ok[i]
            guesses.append(TriedGuess(node, draft.tokens[node], rank, q, None if exact else trials.p[i], ok))
        if guesses:
            yield PathPlace(
                depth, place, depth <= len(path), tuple(guesses), distributions_at(step.tops, place)
            )


def distributions_at(tops: Tops | None, place: int) -> DistributionPair | None:
    """What the record has of both distributions at `place`."""
    if tops is None or place not in tops.places:
        return None
    row = int(np.flatnonzero(tops.places == place)[0])
    known = tops.ids[row] >= 0
    p, q = (np.asarray(x[row][known], np.float64) for x in (tops.p, tops.q))
    if not len(p):
        return None
    rest = np.asarray(tops.rest[row], np.float64)
    drawn = float(q.sum() + rest[1]) > SURE
    return DistributionPair(
        tops.ids[row][known].tolist(), p, q, float(rest[2]), drawn, float(tops.entropy[row])
    )
