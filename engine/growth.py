"""Growth on a draft model: a tree whose nodes come from the model's laws, a level to a pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .draft import ROOT, Draft, Proposal
from .drafters.base import Context, top_tokens
from .feed import Feed
from .samplers.base import softmax


class ModelTree:
    """A draft while it grows in the lane of a draft model.

    tokens, parents, depth: per node; depth 1 stands under the root
    laws, u: per node, float [V] that it was drawn from and the uniform that drew it; empty under a greedy sampler
    """

    def __init__(self, ctx: Context, role: str = "draft"):
        self.ctx, self.lane, self.greedy = ctx, ctx.lanes[role], ctx.sampler.greedy
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.depth: list[int] = []
        self.laws: list[Tensor] = []
        self.u: list[float | None] = []
        self._states: dict[int, Any] = {ROOT: ctx.state}
        self._rows: dict[int, list[int]] = {ROOT: []}  # node read -> pending rows that it sees, itself the last
        self._pending = 0

    def root(self) -> Tensor:
        """float [1, V]: the draft model's logits after the root; what the lane lacks of the text is read first."""
        return self.lane.read(self.ctx.tokens)[None]

    def read(self, nodes: Sequence[int], keep: bool = False) -> Tensor:
        """float [R, V]: the logits after each of `nodes`, in one pass; their parents have been read.

        They stay pending until `close`, each seeing its own ancestors. keep: they are the next token of a chain, committed
        at once, so that what the target accepts need not be read again.
        """
        start, device = self.ctx.position - 1, self.lane.decoder.device
        if keep:
            (node,) = nodes
            logits = self.lane.forward(Feed.causal([self.tokens[node]], start + self.depth[node], device), "draft")
            self.lane.commit([0], compress=False)
            return logits[0]
        visible = torch.zeros(1, len(nodes), self._pending + len(nodes), dtype=torch.bool)
        for i, node in enumerate(nodes):
            self._rows[node] = [*self._rows[self.parents[node]], self._pending + i]
            visible[0, i, self._rows[node]] = True
        self._pending += len(nodes)
        levels = [self.depth[node] for node in nodes]
        tokens = torch.tensor([[self.tokens[node] for node in nodes]], device=device)
        positions = torch.tensor([levels], device=device) + start
        return self.lane.forward(Feed(tokens, positions, visible.to(device), highest=start + max(levels)), "draft")[0]

    def close(self) -> None:
        """Drop what is pending."""
        if self._pending:
            self.lane.rollback()

    def room(self, node: int, deepest: int) -> bool:
        """Whether `node` may have children in a draft of at most `deepest` levels."""
        return self._level(node) < min(deepest, self.ctx.room)

    def law(self, node: int, logits: Tensor) -> Tensor:
        """float [V]: what the children of `node` are drawn from, given the logits [V] after it.

        Under a greedy sampler it is the model's own law, for the estimates of drafters that reckon with one; if the sampler
        then prefers another token, that token and the favourite change places.
        """
        state, sampler = self._states[node], self.ctx.sampler
        if not self.greedy:
            return self.ctx.law(logits, state)
        law = softmax(logits)
        if sampler.stateful:
            pair = torch.stack([law.argmax(), sampler.warp(logits, state).argmax()])
            law[pair] = law[pair.flip(0)]
        return law

    def grow(self, parent: int, logits: Tensor, width: int) -> list[int]:
        """Up to `width` children under `parent`, whose logits are [V]: drawn without replacement, or the likeliest."""
        if self.greedy:
            return [self._add(parent, token, logits) for token in self._likeliest(parent, logits, width)]
        law, position = self.law(parent, logits), self.ctx.position + self._level(parent)
        if width == 1:
            drawn = self.ctx.chance.draw(law, position, "draft")
            return [self._add(parent, drawn.token, logits, law, drawn.u)]
        drawn_laws = self.ctx.chance.draw_without(law, width, position)
        return [self._add(parent, drawn.token, logits, q, drawn.u) for drawn, q in drawn_laws]

    def draw(self, parent: int, law: Tensor, logits: Tensor) -> int:
        """One child under `parent`, drawn from `law` [V], or its likeliest token; logits [V] after the parent."""
        if self.greedy:
            return self._add(parent, int(law.argmax()), logits)
        drawn = self.ctx.chance.draw(law, self.ctx.position + self._level(parent), "draft")
        return self._add(parent, drawn.token, logits, law, drawn.u)

    def _likeliest(self, parent: int, logits: Tensor, width: int) -> list[int]:
        sampler, state = self.ctx.sampler, self._states[parent]
        if not sampler.stateful:
            return [int(logits.argmax())] if width == 1 else top_tokens(logits, width)
        first = int(sampler.warp(logits, state).argmax())
        return [first, *(x for x in top_tokens(logits, width) if x != first)][:width]

    def _level(self, node: int) -> int:
        return 0 if node == ROOT else self.depth[node]

    def _add(self, parent: int, token: int, logits: Tensor, law: Tensor | None = None, u: float | None = None) -> int:
        node, sampler, state = len(self.tokens), self.ctx.sampler, self._states[parent]
        self.tokens.append(token)
        self.parents.append(parent)
        self.depth.append(self._level(parent) + 1)
        self._states[node] = sampler.update(state, token, logits) if sampler.stateful else state
        if law is not None:
            self.laws.append(law)
            self.u.append(u)
        return node

    def draft(self, kind: Proposal, keep: Sequence[int] | None = None, notes: dict[str, Any] | None = None) -> Draft:
        """The finished draft, of all nodes or of those in `keep` (ascending, closed under parents)."""
        nodes = range(len(self.tokens)) if keep is None else keep
        place = {node: i for i, node in enumerate(nodes)} | {ROOT: ROOT}
        tokens, parents = [self.tokens[x] for x in nodes], [place[self.parents[x]] for x in nodes]
        source = self.lane.decoder.spec.name
        if self.greedy or not tokens:
            return Draft(tokens, parents, source=source, notes=notes)
        q, u = torch.stack([self.laws[x] for x in nodes]), [self.u[x] for x in nodes]
        return Draft(tokens, parents, kind, q, list(range(len(tokens))), u, source=source, notes=notes)


def without(law: Tensor, token: int) -> Tensor | None:
    """What law [V] leaves of the other tokens, normalised; None if nothing."""
    rest = law.index_fill(0, torch.tensor(token, device=law.device), 0.0)
    total = rest.sum()
    return rest / total if total > 0 else None
