"""Grow a tree on a draft model: nodes come from the model's distributions, one level per pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.context import Context, DraftedToken
from decodescope.engine.decoding.shared.greedy_continuation import continue_greedily, is_unobserved
from decodescope.engine.decoding.values.chance import Drawn, Remainder, remainders, remaining_distributions
from decodescope.engine.decoding.values.draft import ROOT, Draft, Proposal, unpack_bit_rows
from decodescope.engine.model.forward.feed import Feed

MOST = 128  # nodes of a draft with a given number of children at each level


class ModelTree:
    """A growing draft in the lane of a draft model.

    - tokens, parents, depth: per node; depth 1 is directly under the root
    - laws, u: per node, the distribution that it was drawn from and the uniform that drew it; empty under a greedy sampler

    If the draft model has another tokenizer than the target (`Lane.translated`), everything here is in the target's ids: logits
    are -inf at tokens that the draft model lacks, and the lane alone reads its own ids, at its own positions. own_ids: all of
    it, the text of `ctx` too, is in the lane's own ids instead.

    shared: float [R] for each row of logits that was translated: the probability that the draft model gave to tokens of both
    """

    def __init__(self, ctx: Context, role: str = "draft", own_ids: bool = False):
        self.ctx = ctx
        self.lane = ctx.lanes[role]
        self.greedy = ctx.sampler.greedy
        self.stateful = ctx.sampler.stateful
        text = None if own_ids else self.lane.translated
        self._words = None if text is None else text.vocabulary
        self.shared: list[Tensor] = []
        self._root_at = ctx.position - 1  # where the lane reads the root
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.depth: list[int] = []
        self.laws: list[Drawn] = []
        self.u: list[float | None] = []
        self._states: dict[int, Any] = {ROOT: ctx.state}  # the sampler's after each node, if it has one
        # node read -> the pending rows that it sees, including its own, as bits
        self._sees: dict[int, int] = {ROOT: 0}
        self._pending = 0
        self._firsts: dict[
            tuple[int, int], int
        ] = {}  # first node with the parent's text, token -> first node with this text
        self._first: list[int] = []  # per node, the first node that continues the text by the same tokens
        self.logits: dict[int, Tensor] = {}  # by place, what its children are from, if that is recorded

    def read_root(self) -> Tensor:
        """float [1, V]: the draft model's logits after the root; the lane first reads the text that it lacks.

        The lane can read the text (`Lane.own_ids`).
        """
        text = self.ctx.tokens if self._words is None else self.lane.own_ids(self.ctx.tokens)
        self._root_at = len(text) - 1
        return self._target_logits(self.lane.read(text)[None])

    @property
    def translates(self) -> bool:
        """True if the lane reads other ids than those of the tree."""
        return self._words is not None

    def is_readable(self, node: int) -> bool:
        """True if the draft model has the node's token, and reads so long a text."""
        if self._words is None:
            return True
        fits = self._root_at + self.depth[node] < self.lane.decoder.spec.max_positions
        return fits and self._words.own_id(self.tokens[node]) is not None

    def _target_logits(self, logits: Tensor) -> Tensor:
        if self._words is None:
            return logits
        ours = self._words.to_target_logits(logits)
        self.shared.append((ours.logsumexp(-1) - logits.logsumexp(-1)).exp())
        return ours

    def _lane_ids(self, nodes: Sequence[int]) -> list[int]:
        """The tokens of readable nodes in the lane's ids."""
        tokens = [self.tokens[node] for node in nodes]
        return (
            tokens if self._words is None else [x for x in map(self._words.own_id, tokens) if x is not None]
        )

    def read(self, nodes: Sequence[int], keep: bool = False) -> Tensor:
        """float [R, V]: the logits after each of `nodes`, in one pass; their parents have been read.

        They stay pending until `close`, and each sees its own ancestors. Nodes that continue the text by the same tokens have
        one distribution, but a pass may round their rows differently. So they get the row of the first of them. keep: they are
        the next token of a chain, committed at once, so that accepted tokens need not be read again.
        """
        start, device = self._root_at, self.lane.decoder.device
        if keep:
            (node,) = nodes
            logits = self.lane.forward(
                Feed.causal_chain(self._lane_ids(nodes), start + self.depth[node], device), "draft"
            )
            self.lane.commit([0], compress=False)
            return self._target_logits(logits[0])
        for row, node in enumerate(nodes, self._pending):
            self._sees[node] = self._sees[self.parents[node]] | 1 << row
        self._pending += len(nodes)
        places = [start + self.depth[node] for node in nodes]
        ids = self._lane_ids(nodes)
        fed, at = torch.tensor([ids, places], device=device).chunk(2)  # one copy up for both
        visible = unpack_bit_rows(tuple(self._sees[node] for node in nodes), self._pending)[None]
        fed_nodes = Feed(fed, at, visible.to(device), highest=max(places), ids=ids)
        logits = self._target_logits(self.lane.forward(fed_nodes, "draft")[0])
        firsts: dict[int, int] = {}  # first node with a text -> its row
        rows = [firsts.setdefault(self._first[node], i) for i, node in enumerate(nodes)]
        return logits if len(firsts) == len(rows) else logits[rows]

    def close(self) -> None:
        """Drop what is pending."""
        if self._pending:
            self.lane.rollback()

    def law(self, node: int, logits: Tensor) -> Tensor:
        """float [V]: the distribution of the children of `node`, given the logits [V] after it; see `Context.estimate`."""
        return self.ctx.estimate(logits, self._states[node] if self.stateful else self.ctx.state)

    def estimates(self, nodes: Sequence[int], rows: Tensor) -> Tensor:
        """float [R, V]: `law` of each of `nodes` with logits `rows` [R, V]; at once, if the sampler has no state."""
        if self.stateful:
            return torch.stack([self.law(node, row) for node, row in zip(nodes, rows, strict=True)])
        return self.ctx.estimate(rows, self.ctx.state)

    def grow(self, parent: int, logits: Tensor, width: int) -> list[int]:
        """Add up to `width` children under `parent`, with logits [V] after it; see `add_children`."""
        if width > 1 or self.greedy:
            return self.add_children([parent], logits[None], [width])[0]
        law = self.law(parent, logits)
        drawn = self.ctx.chance.draw(law, self.ctx.position + self._level(parent), "draft")
        return self._add(parent, [drawn.token], logits, [(law, [])], [drawn.u])

    def add_children(
        self, parents: Sequence[int], rows: Tensor, widths: Sequence[int], again: bool = False
    ) -> list[list[int]]:
        """Add up to widths[i] children under the i-th of `parents`, with logits `rows` [R, V]: drawn without replacement, or
        the likeliest.

        again: draw with replacement, so that some may be equal.
        """
        if self.greedy:
            best = self._top_tokens(parents, rows, widths)
            return [self._add(x, own, row) for x, row, own in zip(parents, rows, best, strict=True)]
        grown: list[list[int]] = []
        chance, position = self.ctx.chance, self.ctx.position
        for parent, logits, rest, width in zip(
            parents, rows, remainders(self.estimates(parents, rows)), widths, strict=True
        ):
            at = position + self._level(parent)
            draws = (
                [chance.draw_remaining(rest, at) for _ in range(width)]
                if again
                else chance.draw_distinct(rest, width, at)
            )
            laws = [(rest.law, rest.taken[:i]) for i in range(len(draws))]
            grown.append(self._add(parent, [x.token for x in draws], logits, laws, [x.u for x in draws]))
        return grown

    def add_drawn(self, parent: int, rest: Remainder, logits: Tensor) -> int:
        """Add one child under `parent`, drawn from the rest of its distribution; logits [V] after the parent."""
        drawn = self.ctx.chance.draw_remaining(rest, self.ctx.position + self._level(parent))
        return self._add(parent, [drawn.token], logits, [(rest.law, rest.taken[:])], [drawn.u])[0]

    def add_chosen(self, parent: int, token: int, logits: Tensor) -> int:
        """Add one child under `parent`, chosen without chance; logits [V] after the parent."""
        return self._add(parent, [token], logits)[0]

    def _top_tokens(self, parents: Sequence[int], rows: Tensor, widths: Sequence[int]) -> list[list[int]]:
        """The widths[i] likeliest tokens after the i-th of `parents`, by its logits; the sampler's favourite comes first."""
        sampler, widest = self.ctx.sampler, min(max(widths), rows.shape[1])
        best = (rows.argmax(-1, keepdim=True) if widest == 1 else rows.topk(widest).indices).tolist()
        if self.stateful:
            firsts = [
                int(sampler.warp(row, self._states[x]).argmax()) for x, row in zip(parents, rows, strict=True)
            ]
            best = [
                [first, *(x for x in tokens if x != first)]
                for first, tokens in zip(firsts, best, strict=True)
            ]
        return [tokens[:width] for tokens, width in zip(best, widths, strict=True)]

    def _level(self, node: int) -> int:
        return 0 if node == ROOT else self.depth[node]

    def _add(
        self,
        parent: int,
        tokens: list[int],
        logits: Tensor,
        laws: Sequence[Drawn] = (),
        u: Sequence[float | None] = (),
    ) -> list[int]:
        """Add children of one parent and return their nodes."""
        first, count = len(self.tokens), len(tokens)
        nodes = list(range(first, first + count))
        self.logits |= self.ctx.keep_logits([parent], [logits])
        self.tokens += tokens
        self.parents += [parent] * count
        self.depth += [self._level(parent) + 1] * count
        self.laws += laws
        self.u += u
        above = ROOT if parent == ROOT else self._first[parent]
        self._first += [
            self._firsts.setdefault((above, token), node) for node, token in zip(nodes, tokens, strict=True)
        ]
        if self.stateful:
            state, update = self._states[parent], self.ctx.sampler.update
            self._states.update(
                (node, update(state, token, logits)) for node, token in zip(nodes, tokens, strict=True)
            )
        return nodes

    def to_draft(
        self, kind: Proposal, keep: Sequence[int] | None = None, notes: dict[str, Any] | None = None
    ) -> Draft:
        """The finished draft, of all nodes or of those in `keep` (ascending, closed under parents)."""
        nodes = range(len(self.tokens)) if keep is None else keep
        place = {node: i for i, node in enumerate(nodes)} | {ROOT: ROOT}
        tokens, parents = [self.tokens[x] for x in nodes], [place[self.parents[x]] for x in nodes]
        draft = Draft(tokens, parents, source=self.lane.decoder.spec.name, notes=notes)
        draft.logits = {place[x]: row for x, row in self.logits.items() if x in place}
        if not self.greedy and tokens:
            draft.kind = kind
            draft.q_row = list(range(len(tokens)))
            draft.q = remaining_distributions([self.laws[x] for x in nodes])
            draft.u = [self.u[x] for x in nodes]
        return draft


def scheduled_chain(ctx: Context, length: int, tree: ModelTree | None = None) -> Draft:
    """A chain from the draft model, as long as the schedule allows; length: the drafter's own.

    tree: grows the chain; None: a new one
    """
    tree = tree or ModelTree(ctx)
    longest = ctx.schedule.draft_limit(ctx, length)
    if longest == 0:
        return Draft()
    lane, greedy = ctx.lanes["draft"], ctx.sampler.greedy and not ctx.sampler.stateful
    if tree.translates and not lane.own_ids(ctx.tokens):
        return Draft()
    # no schedule needs the tokens before the last
    if greedy and not tree.translates and not ctx.schedule.adapts and is_unobserved(lane):
        rows = [lane.read(ctx.tokens)]
        kept = rows if ctx.records else None
        first = lane.best[-1]
        tokens = [first, *(continue_greedily(lane, first, longest - 1, kept) if longest > 1 else [])]
        draft = Draft.chain(tokens, source=lane.decoder.spec.name, notes=ctx.schedule.notes() or None)
        draft.logits = ctx.keep_logits([ROOT, *range(longest - 1)], rows)
        return draft
    logits = tree.read_root()
    if not ctx.schedule.is_worth_verifying(logits[0]):
        return Draft()
    (node,) = tree.grow(ROOT, logits[0], 1)
    while (
        ctx.schedule.continue_drafting(_drafted_token(tree, node, logits[0]))
        and len(tree.tokens) < longest
        and tree.is_readable(node)
    ):
        logits = tree.read([node], keep=True)
        if not ctx.schedule.is_worth_verifying(logits[0]):
            break
        (node,) = tree.grow(node, logits[0], 1)
    return tree.to_draft("iid", notes=ctx.schedule.notes() or None)


def _drafted_token(tree: ModelTree, node: int, logits: Tensor) -> DraftedToken:
    """The data that a schedule sees of the last `node` of a chain, drafted from logits [V]."""
    probe = tree.lane.probe
    return DraftedToken(tree.tokens[node], logits, None if probe is None else probe.hidden["final"][0, -1])


def tree_size_conflict(branching: Sequence[int], knob: str, trees: int = 1) -> str | None:
    """One sentence: why `trees` trees with these numbers of children per level have too many nodes; None: they do not.

    knob: by its full name.
    """
    nodes = trees * sum(accumulate(branching, mul))
    if nodes > MOST:
        said = ",".join(map(str, branching))
        return f"{knob} = {said!r} makes {nodes} nodes; {MOST} are the limit, e.g. 3,2,1 makes {15 * trees}."
    return None


class Siblings:
    """The children of one place of a tree, one after the other.

    They are drawn without replacement or, under a greedy sampler, taken likeliest first. logits: float [V] after the place;
    rest: of its distribution; best: under a greedy sampler, the possible children and their probabilities.
    """

    def __init__(
        self,
        tree: ModelTree,
        parent: int,
        logits: Tensor,
        rest: Remainder | None,
        best: list[tuple[int, float]],
    ):
        self._tree = tree
        self._parent = parent
        self._logits = logits
        self._rest = rest
        self._best, self._left = best[::-1], 1.0

    @property
    def has_next(self) -> bool:
        """Whether there may be another child."""
        return (
            self._rest.total > 0 if self._rest is not None else bool(self._best) and self.next_probability > 0
        )

    @property
    def next_probability(self) -> float:
        """Under a greedy sampler: the probability of the next child among what the earlier ones left."""
        return min(1.0, self._best[-1][1] / self._left) if self._left > 0 else 0.0

    def grow(self) -> tuple[int, float]:
        """Add the next child; return its node, and its probability among what the earlier ones left."""
        tree, rest = self._tree, self._rest
        if rest is None:
            taken = self.next_probability
            token, share = self._best.pop()
            self._left -= share
            return tree.add_chosen(self._parent, token, self._logits), taken
        node = tree.add_drawn(self._parent, rest, self._logits)
        # the rest was summed and rounded
        taken = min(1.0, float(rest.p[tree.tokens[node]]) / rest.total)
        rest.take(tree.tokens[node])
        return node, taken


def sibling_groups(tree: ModelTree, nodes: Sequence[int], rows: Tensor, most: int) -> list[Siblings]:
    """The children of each of `nodes` with logits `rows` [R, V]; at most `most` per place under a greedy sampler."""
    laws = tree.estimates(nodes, rows)
    if not tree.greedy:
        return [Siblings(tree, *place, []) for place in zip(nodes, rows, remainders(laws), strict=True)]
    top = laws.topk(min(most, laws.shape[1]))
    best = [[*zip(*x, strict=True)] for x in zip(top.indices.tolist(), top.values.tolist(), strict=True)]
    return [
        Siblings(tree, node, row, None, tokens) for node, row, tokens in zip(nodes, rows, best, strict=True)
    ]
