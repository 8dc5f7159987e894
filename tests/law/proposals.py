"""Drafters for the tests: every kind of proposal that a rule declares, in its smallest form."""

from __future__ import annotations

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import Drafter, top_tokens
from decodescope.engine.decoding.values.draft import ROOT, Draft


class _Tree(Drafter):
    """Grows level by level. Every node may have children, drawn or chosen under the draft model's distribution after it."""

    lanes = ("draft",)

    @property
    def branches(self) -> bool:
        return True

    def propose(self, ctx: Context) -> Draft:
        self.made = Draft()
        self.laws, self.rows, self.u, self.passengers = [], [], [], []
        self.grow(ctx, ROOT, [], ctx.state, min(self.length, ctx.room))
        ride = None if not any(self.passengers) else [not x for x in self.passengers]
        if self.proposes == "onehot" or not self.laws:
            return Draft(self.made.tokens, self.made.parents, acceptable=ride)
        q = torch.stack(self.laws)
        return Draft(
            self.made.tokens, self.made.parents, self.proposes, q, self.rows, self.u, acceptable=ride
        )

    def grow(self, ctx: Context, parent: int, path: list[int], state, room: int) -> None:
        """Add children under `parent`; `path` has the tokens from the root to `parent`."""
        if room == 0:
            return
        logits = ctx.lanes["draft"].read([*ctx.tokens, *path])
        for node in self.children(ctx, parent, logits, state, len(path)):
            token = self.made.tokens[node]
            after = ctx.sampler.update(state, token, logits) if ctx.sampler.stateful else state
            self.grow(ctx, node, [*path, token], after, room - 1)

    def children(self, ctx: Context, parent: int, logits, state, depth: int) -> list[int]:
        raise NotImplementedError

    def chosen(self, parent: int, token: int, passenger: bool = False) -> int:
        return self._node(parent, token, -1, None, passenger)

    def drawn(self, ctx: Context, parent: int, law, depth: int) -> int:
        drawn = ctx.chance.draw(law, ctx.position + depth, "draft")
        self.laws.append(law)
        return self._node(parent, drawn.token, len(self.laws) - 1, drawn.u)

    def _node(self, parent: int, token: int, row: int, u: float | None, passenger: bool = False) -> int:
        self.made.tokens.append(token)
        self.made.parents.append(parent)
        self.rows.append(row)
        self.u.append(u)
        self.passengers.append(passenger)
        return len(self.made.tokens) - 1


@component
class Independent(_Tree):
    """`width` draws with replacement under every node: siblings may be equal."""

    title = "independent siblings"
    proposes = "iid"
    length: int = param(1, low=1, high=9)
    width: int = param(2, low=1, high=9)

    def children(self, ctx, parent, logits, state, depth):
        if ctx.sampler.greedy:
            return [self.chosen(parent, int(ctx.sampler.warp(logits, state).argmax()))]
        law = ctx.law(logits, state)
        return [self.drawn(ctx, parent, law, depth) for _ in range(self.width)]


@component
class Chosen(_Tree):
    """The `width` most likely ids under every node, without chance.

    With `passenger`, one auxiliary node is added and never kept.
    """

    title = "chosen siblings"
    proposes = "onehot"
    length: int = param(2, low=1, high=9)
    width: int = param(1, low=1, high=9)
    passenger: bool = param(False)

    @property
    def branches(self) -> bool:
        return self.width > 1 or self.passenger

    def children(self, ctx, parent, logits, state, depth):
        ids = top_tokens(logits, min(self.width + self.passenger, len(logits)))
        nodes = [self.chosen(parent, x, passenger=rank >= self.width) for rank, x in enumerate(ids)]
        return nodes[: self.width]


@component
class Mixed(_Tree):
    """Under every node, first one id chosen without chance, then one drawn; they may be equal."""

    title = "one chosen, one drawn"
    proposes = "mixed"
    length: int = param(1, low=1, high=9)

    def children(self, ctx, parent, logits, state, depth):
        first = self.chosen(parent, int(logits.argmin()))
        if ctx.sampler.greedy:
            return [first]
        return [first, self.drawn(ctx, parent, ctx.law(logits, state), depth)]


@component
class Taught(_Tree):
    """A chain drawn from the draft model's logits plus a bias per token that changes with each check.

    The bias rises for tokens that the target found likelier than the draft did, and falls for those it found less likely.
    Drafters that learn online work the same way: a node's q is the distribution that drew it, as known at that time.
    """

    title = "a drafter that learns while it decodes"
    proposes = "iid"
    length: int = param(1, low=1, high=9)

    @property
    def branches(self) -> bool:
        return False

    def begin(self, ctx: Context) -> None:
        self.bias = torch.zeros(ctx.lanes["draft"].decoder.vocab, dtype=torch.float64)

    def children(self, ctx, parent, logits, state, depth):
        if ctx.sampler.greedy:
            return [self.chosen(parent, int(ctx.sampler.warp(logits + self.bias, state).argmax()))]
        law = ctx.law(logits + self.bias, state)
        return [self.drawn(ctx, parent, law, depth)]

    def observe(self, outcome: DraftOutcome) -> None:
        for node, token in enumerate(outcome.draft.tokens):
            law = outcome.draft.law(node)
            place = outcome.logits[outcome.draft.parents[node] + 1].softmax(-1)
            self.bias[token] += 2 * float(place[token]) - (1.0 if law is None else 2 * float(law[token]))
