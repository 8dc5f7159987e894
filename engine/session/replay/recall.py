"""Recall: the distributions of a recorded step, as far as its record holds them, in the form that acceptance rules read.

A record shows a few tokens of each distribution and the sum of all others. So the others are merged into two: A, where the
target wants more than the draft, and B, where it does not. How they share their sums is not recorded, except what the first
refusal leaves. A verdict is derived under both extreme ways to share, and counts where both agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.tree import depths
from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.values.chance import Chance, Draw, Purpose, invert_cdf
from decodescope.engine.decoding.values.draft import ROOT, Draft, Verdict
from decodescope.engine.trace.encoding.forks import fork_legs
from decodescope.engine.trace.records.auxiliary_nodes import acceptable_mask
from decodescope.engine.trace.records.events import Header, Step, Tops

# p of a token that the record does not show: too small to change a distribution's sum, but a test finds it
HIDDEN = -1e-300
NEAR = 1e-3  # relative: distributions are recorded in single precision
NOBODY = -1  # a token that is not known


class ReplayedChance(Chance):
    """The numbers that the run drew in a step, and would have drawn next.

    change: (purpose, how many of its draws came before) -> another u.
    """

    def __init__(self, seed: int, uses: dict[tuple[int, int], int], change: dict[tuple[Purpose, int], float]):
        super().__init__(seed)
        self._uses, self.change = dict(uses), change
        self._counts: dict[Purpose, int] = {}

    def uniform(self, position: int, purpose: Purpose) -> float:
        u, count = super().uniform(position, purpose), self._counts.get(purpose, 0)
        self._counts[purpose] = count + 1
        return self.change.get((purpose, count), u)

    def draw(self, p: Tensor, position: int, purpose: Purpose = "token") -> Draw:
        """Draw as the run did, where the whole distribution is there."""
        return invert_cdf(p, self.uniform(position, purpose))


class GuardedChance(ReplayedChance):
    """The same, for distributions with two last entries that represent the tokens that are not shown.

    A token is drawn if it is the same wherever those tokens are in the order, else NOBODY.
    """

    def draw(self, p: Tensor, position: int, purpose: Purpose = "token") -> Draw:
        u, law = self.uniform(position, purpose), p.double().clamp_min(0).tolist()
        total, others = sum(law), law[-1] + law[-2]
        if math.isfinite(total) and total > 0:
            below = 0.0
            for token, share in enumerate(law[:-2]):
                if below + others <= u * total < below + share:
                    return Draw(token, u, below / total, (below + share) / total)
                below += share
        return Draw(NOBODY, u, 0.0, 1.0)


def seed_and_draw_counts(
    header: Header, before: Sequence[Step], step: Step
) -> tuple[int, dict[tuple[int, int], int]]:
    """The seed of `step`, and how often each (position, purpose) was drawn before it; before: the steps before it."""
    leg = [x for x in fork_legs(header) if x.first <= step.step]
    seed, first = leg[-1].seed, 0
    for a, b in pairwise(leg):
        first = b.first if a.seed != b.seed else first
    uses: dict[tuple[int, int], int] = {}
    for one in reversed(before):
        if one.step < first:
            break
        if one.trials is not None and one.draft is not None:
            depth = depths(one.draft.parents)
            for node, u in zip(one.trials.node, one.trials.u, strict=True):
                key = (one.n + depth[node] - 1, 2)
                uses[key] = uses.get(key, 0) + (u is not None)
            for at in range(depth[one.trials.node[-1]], depth[one.trials.node[-1]] + _tests_ahead(one)):
                uses[one.n + at, 2] = uses.get((one.n + at, 2), 0) + 1
        if one.extra is not None and one.extra.u is not None:
            key = (one.n + len(one.path or []), 1)
            uses[key] = uses.get(key, 0) + 1
    return seed, uses


def _tests_ahead(step: Step) -> int:
    """How many tokens of a chain, after the last one tried, the rule tested too in order to decide; a rule records it."""
    ahead = (step.rule or {}).get("ahead", 0)
    return ahead if type(ahead) is int and 0 <= ahead <= len(step.draft.tokens if step.draft else ()) else 0


class Recall:
    """What a record holds of one step.

    whole:   whether the distributions are there in full (level "full")
    sampler: that of the run, or another one if they are;  heat: power to which the shown distributions are raised
    ids:     the token of each entry of a distribution; tokens that are not in it have no entry of their own
    """

    def __init__(self, step: Step, sampler: Sampler, heat: float | None = None):
        self.step, self.sampler = step, sampler
        self.heat = heat
        fields = step.fields
        self.whole = fields is not None and fields.logits is not None and not sampler.stateful
        self._tops = step.tops
        if self.whole:
            assert fields is not None and fields.logits is not None
            self.ids: Sequence[int] = range(fields.logits.shape[1])
        else:
            shown = [] if step.tops is None else step.tops.ids[step.tops.ids >= 0].tolist()
            drafted = [] if step.draft is None else step.draft.tokens
            self.ids = sorted({*shown, *drafted, *([] if step.extra is None else [step.extra.token])})
        self._entry = {} if self.whole else {token: i for i, token in enumerate(self.ids)}

    def draft(self, extreme: int, exact: bool) -> Draft:
        """The draft, with its distributions over `ids` and, where they are not whole, the two merged entries.

        exact: for the lossless rule
        """
        d = self.step.draft
        if d is None:
            return Draft()
        may = acceptable_mask(d)
        if self.whole:
            tokens, f = d.tokens, self.step.fields
            assert f is not None
            if f.laws is None or f.law_of is None:
                return Draft(tokens, d.parents, "onehot", acceptable=may)
            q = torch.from_numpy(f.laws.copy())
            return Draft(tokens, d.parents, d.proposal, q, f.law_of.tolist(), d.u, may)  # type: ignore[arg-type]  # one of its words
        tokens = [self._entry[x] for x in d.tokens]
        if d.proposal == "onehot":
            return Draft(tokens, d.parents, "onehot", acceptable=may)
        rows: list[Tensor] = []
        of: list[int] = []
        for node in range(len(tokens)):
            law = self._draft_distribution(node, extreme, exact)
            of.append(-1 if law is None else len(rows))
            rows += [] if law is None else [law]
        q = torch.stack(rows) if rows else torch.zeros(0, len(self.ids) + 2, dtype=torch.float64)
        return Draft(tokens, d.parents, d.proposal, q, of, d.u, may)  # type: ignore[arg-type]  # one of its words

    def cursor(self, draft: Draft, extreme: int, exact: bool, other: dict[int, int]) -> Cursor:
        """The cursor at the root.

        other: place -> the token that is chosen there under a greedy distribution, instead of the recorded one.
        """
        if not self.whole:
            return _RecordedCursor(
                self, draft, extreme, exact, {p: self._entry[x] for p, x in other.items()}, self.step.n, ROOT
            )
        assert self.step.fields is not None and self.step.fields.logits is not None
        logits = torch.from_numpy(self.step.fields.logits.copy())
        best = logits.argmax(-1).tolist()
        for place, token in other.items():
            best[place + 1] = token
        return Cursor(draft, logits, best, self.sampler, None, self.step.n)

    def row(self, place: int) -> int | None:
        """The row in which the tops show the distribution after `place`."""
        if self._tops is None:
            return None
        rows = np.flatnonzero(self._tops.places == place)
        return int(rows[0]) if len(rows) else None

    def target_distribution(self, place: int, extreme: int, exact: bool) -> Tensor:
        """float64 [len(ids) + 2]: the target's distribution after `place`; nan where it is not recorded."""
        law = torch.full((len(self.ids) + 2,), math.nan, dtype=torch.float64)
        row = self.row(place)
        if row is None or self._tops is None:
            return law
        law.zero_()
        d, t = self.step.draft, self.step.trials
        shares = _split_rest(self._tops, row, extreme, exact)
        law[-2], law[-1] = shares[0], shares[2]
        self._fill_shown(law, self._tops.p, row)
        if d is not None and float(shares[0] + shares[2]) > 0:
            shown = set(self._tops.ids[row].tolist())
            for token, parent in zip(d.tokens, d.parents, strict=True):
                if parent == place and token not in shown:
                    law[self._entry[token]] = HIDDEN
        if d is not None and t is not None:  # in doubles, where it was tried
            for node, p, u in zip(t.node, t.p, t.u, strict=True):
                if d.parents[node] == place and (u is not None or p not in (0.0, 1.0)):
                    law[self._entry[d.tokens[node]]] = p
        if self.heat is not None:
            law = law.clamp_min(0) ** self.heat
            law = law / law.sum()
        return law

    def _draft_distribution(self, node: int, extreme: int, exact: bool) -> Tensor | None:
        """The distribution that a node was drawn from; None: it was chosen without chance.

        If the distribution cannot be recovered, it is nan except for the node's own token.
        """
        d = self.step.draft
        assert d is not None
        if d.u is not None and d.u[node] is None:
            return None
        place, x = d.parents[node], self._entry[d.tokens[node]]
        law = torch.zeros(len(self.ids) + 2, dtype=torch.float64)
        row = self.row(place)
        if row is not None and self._tops is not None:
            shares = _split_rest(self._tops, row, extreme, exact)
            law[-2], law[-1] = shares[1], shares[3]
            self._fill_shown(law, self._tops.q, row)
            if d.proposal == "without_replacement":
                for before in range(node):
                    if d.parents[before] == place:
                        law[self._entry[d.tokens[before]]] = 0
                law = law / law.sum()
        if not math.isclose(float(law[x]), d.q[node], rel_tol=NEAR, abs_tol=1e-9):
            law.fill_(math.nan)
        law[x] = d.q[node]
        return law

    def _fill_shown(self, law: Tensor, values: np.ndarray, row: int) -> None:
        assert self._tops is not None
        for token, value in zip(self._tops.ids[row].tolist(), values[row].tolist(), strict=True):
            if token >= 0:
                law[self._entry[token]] = value

    def count_known_trials(self, verdict: Verdict) -> int:
        """How many of the verdict's trials, from the first, follow from the record."""
        d = self.step.draft
        for i, trial in enumerate(verdict.trials):
            here = self.whole or (d is not None and self.row(d.parents[trial.node]) is not None)
            numbers = (trial.p, trial.r, trial.q, trial.threshold)
            if not here or any(math.isnan(x) for x in numbers) or trial.p < 0 or trial.r < 0:
                return i
        return len(verdict.trials)


class _RecordedCursor(Cursor):
    """A place with the distribution that the record shows of it."""

    whole = False

    def __init__(
        self,
        recall: Recall,
        draft: Draft,
        extreme: int,
        exact: bool,
        other: dict[int, int],
        position: int,
        node: int,
    ):
        self.recall = recall
        self.extreme = extreme
        self.exact = exact
        self.other = other
        self.draft = draft
        self.sampler = recall.sampler
        self.state = None
        self.position = position
        self.node = node
        self.hidden, self.greedy = None, recall.sampler.greedy

    @property
    def probs(self) -> Tensor:
        """float64 [len(ids) + 2]."""
        return self.recall.target_distribution(self.node, self.extreme, self.exact)

    @property
    def model_probs(self) -> Tensor:
        """The same: under a greedy sampler a record shows the softmax of the logits."""
        return self.probs

    @property
    def top_token(self) -> int:
        """As recorded, since the likeliest tokens are always shown; NOBODY where the place was not visited."""
        shown = self.probs[:-2]
        return NOBODY if shown.isnan().any() else int(shown.argmax())

    @property
    def entropy(self) -> float:
        """In nats; nan where the place was not visited."""
        row = self.recall.row(self.node)
        if row is None or self.recall.step.tops is None:
            return math.nan
        return float(self.recall.step.tops.entropy[row]) if self.recall.heat is None else super().entropy

    @property
    def choice(self) -> int:
        """Under a greedy distribution: the choice that the path, or the target's own token, shows."""
        if self.node in self.other:
            return self.other[self.node]
        step = self.recall.step
        path = [ROOT, *(step.path or [])]
        if self.node in path and step.draft is not None:
            at = path.index(self.node)
            if at + 1 < len(path):
                return self.recall._entry[step.draft.tokens[path[at + 1]]]
        if self.node == path[-1] and step.extra is not None:
            return self.recall._entry[step.extra.token]
        return NOBODY

    def state_after(self, token: int) -> Any:
        return None

    def descend(self, child: int) -> Cursor:
        return _RecordedCursor(
            self.recall, self.draft, self.extreme, self.exact, self.other, self.position + 1, child
        )


def _split_rest(tops: Tops, row: int, extreme: int, exact: bool) -> tuple[float, float, float, float]:
    """p and q of A, p and q of B: how all tokens that are not shown may share their sums, at one of two extremes.

    exact: what the first refusal leaves of them is as recorded. Else: what any refusal may leave is between the two.
    """
    p, q, over = (max(0.0, float(x)) for x in tops.rest[row])
    if not exact:
        return (p, q, 0.0, 0.0) if extreme == 0 else (p, 0.0, 0.0, q)
    over = min(over, p)
    return (over, 0.0, p - over, q) if extreme == 0 else (p, p - over, 0.0, max(0.0, q - p + over))
