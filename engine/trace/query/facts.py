"""Facts: what a condition may ask of a step, by name: of the step itself, and of each of its nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from decodescope.engine.core.tree import depths

from ..checks.step_probabilities import StepProbabilities
from ..records.draft_tops import tokens_by_place
from ..records.events import Header, Level, Piece, Step, Tops
from ..records.parts import zone_entries, zones
from ..records.pieces import join

Kind = Literal["number", "text", "token", "truth"]
SURE = 1e-4  # tops are float32: a smaller sum is rounding
SINKS = 4  # first positions that count as sinks where the run's policy names no number


@dataclass(frozen=True)
class Fact:
    """One name. kind: what its value is;  per: one value for a step, for each node, or for the run so far
    read: its value: a column over the nodes, where it is per node;  level: at which it is recorded
    """

    kind: Kind
    per: Literal["step", "node", "run"]
    meaning: str
    example: str
    read: Callable[[StepFacts], Any]
    level: Level = "decisions"


class StepFacts:
    """One step, asked by name. Its nodes are the drafted ones in their order, then the target's own token, where there is
    one. A value that this step or node has not is None.

    pieces: id -> piece of text;  tried, passed: trials of the run up to this step, and those that were accepted
    """

    def __init__(
        self, step: Step, header: Header, pieces: Mapping[str, Piece], tried: int = 0, passed: int = 0
    ):
        self.step = step
        self.header = header
        self.pieces = pieces
        self.tried = tried
        self.passed = passed
        self._columns: dict[str, list[Any]] = {}

    def value(self, name: str) -> Any:
        """Of the step."""
        return FACTS[name].read(self)

    def column(self, name: str) -> list[Any]:
        """Of every node."""
        if name not in self._columns:
            self._columns[name] = FACTS[name].read(self)
        return self._columns[name]

    def text(self, tokens: list[int]) -> str:
        """The text of some ids."""
        return join(tokens, {x: self.pieces[str(x)] for x in tokens if str(x) in self.pieces})

    @cached_property
    def tokens(self) -> list[int]:
        """The id of every node; a step that drafts nothing and draws nothing has one node for each token that it emitted."""
        step = self.step
        tokens = [] if step.draft is None else [*step.draft.tokens]
        if step.extra is not None:
            tokens.append(step.extra.token)
        return tokens or [*step.emitted]

    @cached_property
    def has_drawn_nodes(self) -> bool:
        """True if the nodes are those of a draft, or the target's own token, rather than the tokens that were emitted."""
        return self.step.draft is not None or self.step.extra is not None

    @cached_property
    def parents(self) -> list[int]:
        """The place of every node: -1 the root, else the node before it."""
        step = self.step
        parents = [] if step.draft is None else [*step.draft.parents]
        if step.extra is not None:
            parents.append(step.path[-1] if step.path else -1)
        return parents or list(range(-1, len(step.emitted) - 1))

    @cached_property
    def came(self) -> list[bool]:
        """Of every node, whether its token is the one that came at its place."""
        step = self.step
        extra = None if step.extra is None else step.extra.token
        by_place = tokens_by_place([] if step.draft is None else step.draft.tokens, step.path or [], extra)
        return [by_place.get(place) == x for place, x in zip(self.parents, self.tokens, strict=True)]

    @cached_property
    def probabilities(self) -> StepProbabilities:
        """Entropies and the model's own probabilities by place."""
        return StepProbabilities(self.header, self.step)

    def trial(self, name: str) -> list[Any]:
        """A column of the trials by node; None for one that was not tried. The target's own token ends it."""
        step = self.step
        places: list[Any] = [None] * len(self.tokens)
        if step.trials is not None:
            for node, value in zip(step.trials.node, getattr(step.trials, name), strict=True):
                places[node] = value
        x = step.extra
        if x is not None and x.u is not None and name in ("p", "r", "u"):
            places[-1] = x.u if name == "u" else x.high - x.low
        return places

    def distribution_column(self, of: Callable[[Tops, int], float | None]) -> list[Any]:
        """A figure of the distribution that judged each node; None if that place was not visited."""
        tops = self.step.tops
        if tops is None:
            return [None] * len(self.tokens)
        known = {int(place): of(tops, row) for row, place in reversed([*enumerate(tops.places.tolist())])}
        return [known.get(place) for place in self.parents]

    def evicted_positions(self) -> list[int] | None:
        """Positions that left the target's cache in this step, from whichever layer or head; None: counted, not listed."""
        evicted: list[int] = []
        for change in self.step.cache:
            if change.lane != "target":
                continue
            if change.evicted_count and change.evicted_all is None and change.evicted is None:
                return None
            evicted += [] if change.evicted_all is None else change.evicted_all.tolist()
            evicted += [] if change.evicted is None else change.evicted[:, 2].tolist()
        return evicted

    @property
    def sinks(self) -> int:
        """The number of first positions that are sinks: from the run's policy, else SINKS."""
        first = zone_entries(zones(self.header), "first")
        return SINKS if first is None else first


def _node_depths(f: StepFacts) -> list[int]:
    return depths(f.parents)


def _node_verdicts(f: StepFacts) -> list[str]:
    ok = f.trial("ok")
    path = set(f.step.path or [])
    extra = f.step.extra
    aside = set((f.step.draft.passengers if f.step.draft is not None else None) or ())
    verdicts = ["passenger" if i in aside else "not reached" for i in range(len(ok))]
    for i, passed in enumerate(ok):
        if i in path or passed is False:
            verdicts[i] = "accepted" if i in path else "rejected"
    if extra is not None:
        verdicts[-1] = extra.origin
    elif not f.has_drawn_nodes:
        verdicts = [*f.step.origins]
    return verdicts


def _first_reject(f: StepFacts) -> int | None:
    t = f.step.trials
    return None if t is None else next((node for node, ok in zip(t.node, t.ok, strict=True) if not ok), None)


def _shown_p_and_q(tops: Tops, row: int) -> tuple[np.ndarray, np.ndarray] | None:
    """p and q of the shown tokens and, last, of all others; None if nothing was drawn."""
    known = tops.ids[row] >= 0
    p, q = (
        np.append(x[row][known], tops.rest[row, k]).astype(np.float64) for k, x in enumerate((tops.p, tops.q))
    )
    return (p, q) if float(q.sum()) > SURE else None


def _kl(tops: Tops, row: int) -> float | None:
    laws = _shown_p_and_q(tops, row)
    if laws is None:
        return None
    p, q = (x[laws[0] > 0] for x in laws)
    return float((p * np.log(p / q)).sum()) if bool((q > 0).all()) else None


def _overlap(tops: Tops, row: int) -> float | None:
    laws = _shown_p_and_q(tops, row)
    if laws is None:
        return None
    return max(0.0, 1.0 - float(np.maximum(laws[0] - laws[1], 0)[:-1].sum()) - float(tops.rest[row, 2]))


def _draft_ranks(f: StepFacts) -> list[int | None]:
    """The rank of every node's token in the draft's distribution at its place: that before the sampler, if it was recorded."""
    tops, own_tops = f.step.tops, f.step.draft_tops
    ranks: list[int | None] = [None] * len(f.tokens)
    if own_tops is not None:
        ranks = [own_tops.rank_of(*x) for x in zip(f.parents, f.tokens, f.came, strict=True)]
    if tops is None:
        return ranks
    rows = {place: row for row, place in reversed([*enumerate(tops.places.tolist())])}
    for i, (place, token) in enumerate(zip(f.parents, f.tokens, strict=True)):
        row = rows.get(place)
        if ranks[i] is not None or row is None or _shown_p_and_q(tops, row) is None:
            continue
        q = tops.q[row]
        own = q[tops.ids[row] == token]
        ranks[i] = int((q > (own[0] if len(own) else 0)).sum()) + 1
    return ranks


def _cache_reader(name: str) -> Callable[[StepFacts], Any]:
    return lambda f: next((getattr(x, name) for x in f.step.cache if x.lane == "target"), None)


def _milliseconds_reader(name: str) -> Callable[[StepFacts], float]:
    return lambda f: getattr(f.step, name) / 1e3


def _trial_count_reader(ok: bool) -> Callable[[StepFacts], Any]:
    return lambda f: None if f.step.trials is None else f.step.trials.ok.count(ok)


def _first_exit(f: StepFacts) -> int | None:
    return min((x.depth for x in f.step.exits), default=None) if f.step.exits else None


def _evicts_sink(f: StepFacts) -> bool | None:
    gone = f.evicted_positions()
    return None if gone is None else any(position < f.sinks for position in gone)


FACTS: dict[str, Fact] = {
    "first reject": Fact(
        "truth", "step", "A drafted token was rejected.", "first reject", lambda f: _first_reject(f) is not None
    ),
    "accepted": Fact("number", "step", "Drafted tokens accepted.", "accepted == 0", lambda f: f.step.accepted, "summary"),
    "drafted": Fact("number", "step", "Tokens drafted.", "drafted > 8", lambda f: f.step.drafted, "summary"),
    "rejected": Fact("number", "step", "Tests that rejected a token.", "rejected >= 2", _trial_count_reader(False)),
    "tried": Fact(
        "number", "step", "Tests made.", "tried > 4", lambda f: None if f.step.trials is None else len(f.step.trials.ok)
    ),
    "tokens": Fact("number", "step", "Tokens emitted.", "tokens >= 4", lambda f: len(f.step.emitted), "summary"),
    "text": Fact(
        "text", "step", "The text that the step emitted.", 'text contains "the"', lambda f: f.text(f.step.emitted), "summary"
    ),
    "p": Fact(
        "number", "node", "A tried token's share in the target's sampling distribution, after the sampler: 1 or 0 if greedy.",
        "p < 0.01", lambda f: f.trial("p"),
    ),
    "p_model": Fact(
        "number", "node", "The token's share in the model distribution, before the sampler; recorded under a greedy one alone.",
        "p_model > 0.3 and first reject", lambda f: list(map(f.probabilities.model, f.parents, f.tokens)),
    ),
    "q": Fact(
        "number",
        "node",
        "The draft's probability of its token.",
        "p/q < 0.1",
        lambda f: [
            q if q is not None else d
            for q, d in zip(f.trial("q"), [*(f.step.draft.q if f.step.draft else [])] + [None] * len(f.tokens), strict=False)
        ],
    ),
    "r": Fact("number", "node", "What was left of p after earlier siblings were rejected.", "r == 0", lambda f: f.trial("r")),
    "u": Fact("number", "node", "The uniform number that was drawn for the test.", "u > 0.95", lambda f: f.trial("u")),
    "threshold": Fact(
        "number", "node", "What u had to stay below, or the rule's bound.", "threshold < 0.1", lambda f: f.trial("threshold")
    ),
    "depth": Fact("number", "node", "Distance of the node from the root, from 1.", "first reject and depth == 1", _node_depths),
    "token": Fact("token", "node", "The node's token: its text or its id.", 'token in {" the", 42}', lambda f: f.tokens),
    "id": Fact("number", "node", "The id of the node's token.", "id >= 4000 and first reject", lambda f: f.tokens),
    "position": Fact(
        "number", "node", "The node's place in the text, the prompt included, from 0.", "position > 512 and first reject",
        lambda f: [f.step.n + deep - 1 for deep in _node_depths(f)],
    ),
    "draft_rank": Fact(
        "number", "node",
        "Rank of the token in the draft's distribution at its place, from 1. A token that was refused and is not among those "
        "shown has the rank behind them. Unknown where the draft recorded no distribution.",
        'draft_rank > 8 and verdict == "residual"', _draft_ranks,
    ),
    "verdict": Fact(
        "text",
        "node",
        "accepted, rejected, not reached, bonus, residual, correction or target.",
        'verdict == "rejected" and depth == 1',
        _node_verdicts,
    ),
    "entropy": Fact(
        "number",
        "node",
        "In nats, at the node's place: of the model distribution under a greedy sampler, else of the sampling distribution.",
        "entropy > 2",
        lambda f: list(map(f.probabilities.entropy, f.parents)),
    ),
    "kl": Fact(
        "number", "node", "KL(p‖q) of both sampling distributions there, in nats, from the tokens shown: at least.", "kl > 1",
        lambda f: f.distribution_column(_kl),
    ),
    "overlap": Fact(
        "number", "node", "Sum of min(p, q) at the node's place: the chance that a guess is accepted.", "overlap < 0.3",
        lambda f: f.distribution_column(_overlap),
    ),
    "alpha": Fact(
        "number", "run", "Share of all tests so far that accepted.", "alpha < 0.4",
        lambda f: f.passed / f.tried if f.tried else None,
    ),
    "held": Fact("number", "step", "Entries in the target's cache.", "held > 256", _cache_reader("held"), "summary"),
    "evicted": Fact("number", "step", "Entries that left that cache.", "evicted > 0", _cache_reader("evicted_count"),
        "summary"),
    "evicts a sink": Fact(
        "truth", "step", "One of the first positions left the target's cache.", "evicts a sink", _evicts_sink
    ),
    "exit layer": Fact("number", "step", "Layers that ran before an early exit.", "exit layer < 4", _first_exit),
    "ties": Fact(
        "number", "step", "Places where the two best logits were closer than rounding.", "ties > 0",
        lambda f: len(f.step.tie or []),
    ),
    "step": Fact("number", "step", "The step's number, from 0.", "step == 17", lambda f: f.step.step, "summary"),
    "n": Fact("number", "step", "Tokens before the step, the prompt included.", "n >= 128", lambda f: f.step.n, "summary"),
    **{
        f"{word} ms": Fact("number", "step", meaning, f"{word} ms > 50", _milliseconds_reader(f"{name}_us"), "summary")
        for word, name, meaning in (
            ("verify", "verify", "Milliseconds of the target's pass and the tests."),
            ("draft", "draft", "Milliseconds of drafting."),
            ("commit", "commit", "Milliseconds of the commit."),
            ("cache", "policy", "Milliseconds of the cache policy."),
            ("step", "wall", "Milliseconds of the whole step."),
        )
    },
}  # fmt: skip


def finite_or_none(value: Any) -> Any:
    """A number that can be compared; None for one that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
