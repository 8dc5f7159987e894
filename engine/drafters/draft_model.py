"""Draft model: a smaller model writes ahead, the target checks."""

from __future__ import annotations

import torch
from torch import Tensor

from ..component import component, param
from ..draft import ROOT, Draft
from ..feed import Feed
from .base import Context, Drafter, top_tokens


@component
class DraftModel(Drafter):
    """Speculative sampling: a chain drawn token by token from the draft model under the target's own sampler, or a tree
    of `width` chains whose first tokens are drawn without replacement.

    Each node is drawn from its parent's law, which the draft records. Under a greedy sampler the chain takes the most
    likely token, the tree the `width` most likely first ones. A chain costs `length` passes of the draft model, so does a
    tree: its chains grow side by side in one pass a level.
    """

    title = "Draft model"
    source = "Leviathan et al. 2023, arXiv:2211.17192, section 2.3; Chen et al. 2023, arXiv:2302.01318"
    lanes = ("draft",)

    length: int = param(4, low=1, high=16, unit="tokens", help="gamma, tokens drafted per step")
    width: int = param(1, low=1, high=8, help="branches at the first token")

    @property
    def proposes(self) -> str:  # type: ignore[override] # depends on a knob
        """How nodes are drawn when the sampler draws."""
        return "iid" if self.width == 1 else "without_replacement"

    @property
    def branches(self) -> bool:
        return self.width > 1

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        lane = ctx.lanes["draft"]
        grown = _Growth(ctx)
        logits = lane.read(ctx.tokens)
        frontier = grown.first(logits, self.width)
        for depth in range(1, min(self.length, ctx.room)):
            rows = grown.read(frontier, depth, chain=self.width == 1)
            frontier = [grown.add(node, rows[i], state, depth) for i, (node, state) in enumerate(frontier)]
        if self.width > 1:
            lane.rollback()
        return grown.draft(self.proposes, lane.decoder.spec.name)


class _Growth:
    """A draft while it grows: nodes, their laws, and the sampler's state along each branch."""

    def __init__(self, ctx: Context):
        self.ctx, self.greedy = ctx, ctx.sampler.greedy
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.laws: list[Tensor] = []
        self.u: list[float | None] = []

    def first(self, logits: Tensor, width: int) -> list[tuple[int, object]]:
        """The children of the root, (node, sampler state) each."""
        ctx = self.ctx
        if self.greedy:
            warped = ctx.sampler.warp(logits, ctx.state) if ctx.sampler.stateful and width == 1 else logits
            chosen = [int(warped.argmax())] if width == 1 else top_tokens(logits, width)
            return [self._node(ROOT, token, None, None, logits, ctx.state) for token in chosen]
        law = ctx.law(logits, ctx.state)
        if width == 1:
            drawn = ctx.chance.draw(law, ctx.position, "draft")
            return [self._node(ROOT, drawn.token, law, drawn.u, logits, ctx.state)]
        drawn_laws = ctx.chance.draw_without(law, width, ctx.position)
        return [self._node(ROOT, d.token, q, d.u, logits, ctx.state) for d, q in drawn_laws]

    def add(self, parent: int, logits: Tensor, state: object, depth: int) -> tuple[int, object]:
        """One child of `parent`, drawn from logits [V] under the sampler's `state`."""
        ctx = self.ctx
        if self.greedy:
            warped = ctx.sampler.warp(logits, state) if ctx.sampler.stateful else logits
            return self._node(parent, int(warped.argmax()), None, None, logits, state)
        law = ctx.law(logits, state)
        drawn = ctx.chance.draw(law, ctx.position + depth, "draft")
        return self._node(parent, drawn.token, law, drawn.u, logits, state)

    def _node(
        self, parent: int, token: int, law: Tensor | None, u: float | None, logits: Tensor, state: object
    ) -> tuple[int, object]:
        self.tokens.append(token)
        self.parents.append(parent)
        self.u.append(u)
        if law is not None:
            self.laws.append(law)
        sampler = self.ctx.sampler
        return len(self.tokens) - 1, sampler.update(state, token, logits) if sampler.stateful else state

    def read(self, frontier: list[tuple[int, object]], depth: int, chain: bool) -> Tensor:
        """Logits [R, V] after each node of the frontier, in one pass of the draft model.

        A chain is committed at once, so that what the target accepts need not be read again; branches stay pending, each
        seeing its own ancestors.
        """
        lane, start = self.ctx.lanes["draft"], self.ctx.position
        nodes = [node for node, _ in frontier]
        if chain:
            feed = Feed.causal([self.tokens[nodes[0]]], start + depth - 1, lane.decoder.device)
            logits = lane.forward(feed, "draft")
            lane.commit([0], compress=False)
            return logits[0]
        width = len(nodes)
        device = lane.decoder.device
        level = torch.eye(width, dtype=torch.bool, device=device)
        feed = Feed(
            torch.tensor([[self.tokens[i] for i in nodes]], device=device),
            torch.full((1, width), start + depth - 1, device=device),
            level.repeat(1, depth)[None],
            highest=start + depth - 1,
        )
        return lane.forward(feed, "draft")[0]

    def draft(self, kind: str, source: str) -> Draft:
        """The finished draft."""
        if self.greedy:
            return Draft(self.tokens, self.parents, "onehot", source=source)
        rows = list(range(len(self.tokens)))
        return Draft(self.tokens, self.parents, kind, torch.stack(self.laws), rows, self.u, source=source)  # type: ignore[arg-type] # a Literal
