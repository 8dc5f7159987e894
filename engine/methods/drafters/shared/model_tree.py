"""Growth on a draft model: a tree whose nodes come from the model's laws, a level to a pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.decoding.chained import write_on, writes_alone
from decodescope.engine.decoding.context import Context, Drafted
from decodescope.engine.decoding.draft import ROOT, Draft, Proposal
from decodescope.engine.decoding.drafter import top_tokens
from decodescope.engine.model.feed import Feed

MOST = 128  # nodes of a draft with a given number of children at each level


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
        """float [V]: what the children of `node` are drawn from, given the logits [V] after it; see `Context.estimate`."""
        return self.ctx.estimate(logits, self._states[node])

    def grow(self, parent: int, logits: Tensor, width: int, again: bool = False) -> list[int]:
        """Up to `width` children under `parent`, whose logits are [V]: drawn without replacement, or the likeliest.
        again: drawn with replacement, so that some may be equal."""
        if self.greedy:
            return [self._add(parent, token, logits) for token in self._likeliest(parent, logits, width)]
        law, position = self.law(parent, logits), self.ctx.position + self._level(parent)
        if width == 1 or again:
            draws = [self.ctx.chance.draw(law, position, "draft") for _ in range(width)]
            return [self._add(parent, drawn.token, logits, law, drawn.u) for drawn in draws]
        drawn_laws = self.ctx.chance.draw_without(law, width, position)
        return [self._add(parent, drawn.token, logits, q, drawn.u) for drawn, q in drawn_laws]

    def draw(self, parent: int, law: Tensor, logits: Tensor) -> int:
        """One child under `parent`, drawn from `law` [V]; logits [V] after the parent."""
        drawn = self.ctx.chance.draw(law, self.ctx.position + self._level(parent), "draft")
        return self._add(parent, drawn.token, logits, law, drawn.u)

    def put(self, parent: int, token: int, logits: Tensor) -> int:
        """One child under `parent`, chosen without chance; logits [V] after the parent."""
        return self._add(parent, token, logits)

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


def scheduled_chain(ctx: Context, length: int) -> Draft:
    """A chain of the draft model's, as long as the schedule lets it be; length: the drafter's own."""
    longest = ctx.schedule.allow(ctx, length)
    if longest == 0:
        return Draft()
    lane, greedy = ctx.lanes["draft"], ctx.sampler.greedy and not ctx.sampler.stateful
    if greedy and not ctx.schedule.adapts and writes_alone(lane):  # nobody asks anything before the last token
        lane.read(ctx.tokens)
        first = lane.best[-1]
        tokens = [first, *(write_on(lane, first, longest - 1) if longest > 1 else [])]
        return Draft.chain(tokens, source=lane.decoder.spec.name, notes=ctx.schedule.notes() or None)
    tree = ModelTree(ctx)
    logits = tree.root()
    (node,) = tree.grow(ROOT, logits[0], 1)
    while ctx.schedule.more(_drafted(tree, node, logits[0])) and len(tree.tokens) < longest:
        logits = tree.read([node], keep=True)
        (node,) = tree.grow(node, logits[0], 1)
    return tree.draft("iid", notes=ctx.schedule.notes() or None)


def _drafted(tree: ModelTree, node: int, logits: Tensor) -> Drafted:
    """What a schedule sees of the last `node` of a chain, which was drafted from logits [V]."""
    probe = tree.lane.probe
    return Drafted(tree.tokens[node], logits, None if probe is None else probe.hidden["final"][0, -1])


def unfit(branching: Sequence[int], knob: str, trees: int = 1) -> str | None:
    """Why `trees` trees with these numbers of children at each level have too many nodes, in a sentence; None if they have
    not. knob: by its full name."""
    nodes = trees * sum(accumulate(branching, mul))
    if nodes > MOST:
        said = ",".join(map(str, branching))
        return f"{knob} = {said!r} makes {nodes} nodes; {MOST} are the limit, e.g. 3,2,1 makes {15 * trees}."
    return None


class Siblings:
    """The children of one place of a tree, one after the other: drawn without replacement, or at most `most` of them, the
    likeliest first, under a greedy sampler. logits: float [V] after the place."""

    def __init__(self, tree: ModelTree, parent: int, logits: Tensor, most: int):
        self._tree, self._parent, self._logits = tree, parent, logits
        law = tree.law(parent, logits)
        self._law: Tensor | None = law  # what the children so far left
        self._tokens = top_tokens(law, most)[::-1] if tree.greedy else []
        self._chances: list[float] = law[self._tokens].tolist() if tree.greedy else []
        self._left = 1.0

    @property
    def more(self) -> bool:
        """Whether there may be another child."""
        return bool(self._tokens) and self.likeliest > 0 if self._tree.greedy else self._law is not None

    @property
    def likeliest(self) -> float:
        """Under a greedy sampler: the probability of the next child among what the earlier ones left."""
        return min(1.0, self._chances[-1] / self._left) if self._left > 0 else 0.0

    def grow(self) -> tuple[int, float]:
        """The next child's node, and the probability it had among what the earlier ones left."""
        tree = self._tree
        if tree.greedy:
            taken = self.likeliest
            self._left -= self._chances.pop()
            return tree.put(self._parent, self._tokens.pop(), self._logits), taken
        assert self._law is not None
        node = tree.draw(self._parent, self._law, self._logits)
        taken = float(self._law[tree.tokens[node]])
        self._law = without(self._law, tree.tokens[node]) if taken < 1 else None
        return node, taken


def without(law: Tensor, token: int) -> Tensor | None:
    """What law [V] leaves of the other tokens, normalised; None if nothing."""
    rest = law.index_fill(0, torch.tensor(token, device=law.device), 0.0)
    total = rest.sum()
    return rest / total if total > 0 else None
