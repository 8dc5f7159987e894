"""Plan: which prompts of a batch are read behind which common prefix. No torch.

BatchLLM (Zheng et al. 2024, arXiv:2412.03594) knows all prompts beforehand and puts them into a prefix tree. Each prompt has
one shared prefix (one level, as the attention over it needs), and BatchLLM chooses its length. A long prefix saves much for few
prompts, a short one little for many. The tokens above a chosen node are read once more for it.

The paper decides node by node, by gain and loss there (so summaries of it say; its code is not public). Here dynamic
programming over a node and its nearest chosen ancestor finds the best choice of all.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from decodescope.engine.core.prefix import common_prefix


@dataclass(frozen=True)
class PrefixGroup:
    """Prompts whose first `prefix` tokens are the same and are read once; `members`: their numbers, ascending."""

    prefix: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class BatchPlan:
    """Groups, each prompt in one of them, in the order in which they are decoded.

    tokens: of all prompts;  read: how many of them are read
    least:  how many would be read if a prompt could share several prefixes, one behind the other: the nodes of the whole prefix
            tree
    """

    groups: tuple[PrefixGroup, ...]
    tokens: int
    read: int
    least: int


@dataclass
class _Node:
    """A place in the prefix tree at which prompts part or end. own: numbers of those that end here."""

    depth: int
    parent: int
    own: list[int] = field(default_factory=list)


def plan_batch(prompts: Sequence[Sequence[int]]) -> BatchPlan:
    """A plan that reads the fewest tokens where each prompt has one shared prefix.

    No prompt shares its last token: the first pass that writes reads it. Groups with the shortest prompts on average come
    first: their passes write the most tokens per entry read.
    """
    nodes = _prefix_tree(prompts)
    opened = _choose_prefixes(nodes)
    members: dict[int, list[int]] = {}
    alone: list[int] = []
    group_of: list[int | None] = []  # by node: its nearest chosen one, itself included
    for i, node in enumerate(nodes):
        above = None if node.parent < 0 else group_of[node.parent]
        of = i if opened[i] else above
        group_of.append(of)
        (alone if of is None else members.setdefault(of, [])).extend(node.own)
    groups = [PrefixGroup(nodes[i].depth, tuple(sorted(each))) for i, each in members.items()]
    groups += [PrefixGroup(0, tuple(sorted(alone)))] if alone else []
    groups.sort(key=lambda x: (sum(len(prompts[i]) for i in x.members) / len(x.members), x.members))
    tokens = sum(map(len, prompts))
    read = tokens - sum(x.prefix * (len(x.members) - 1) for x in groups)
    last = len(prompts)  # the last tokens, each read for itself
    least = last + sum(node.depth - (nodes[node.parent].depth if node.parent >= 0 else 0) for node in nodes)
    return BatchPlan(tuple(groups), tokens, read, least)


def _prefix_tree(prompts: Sequence[Sequence[int]]) -> list[_Node]:
    """The prefix tree of the prompts without their last tokens, parents before their children."""
    heads = [tuple(x[:-1]) for x in prompts]
    nodes = [_Node(0, -1)]
    path = [0]  # the nodes above the prompt that was put in last
    before: tuple[int, ...] = ()
    for i in sorted(range(len(heads)), key=heads.__getitem__):
        shared = common_prefix(before, heads[i])
        below = -1
        while nodes[path[-1]].depth > shared:
            below = path.pop()
        if nodes[path[-1]].depth < shared:  # they part in the middle of an edge
            nodes.append(_Node(shared, path[-1]))
            nodes[below].parent = len(nodes) - 1
            path.append(len(nodes) - 1)
        if len(heads[i]) > shared:
            nodes.append(_Node(len(heads[i]), path[-1]))
            path.append(len(nodes) - 1)
        nodes[path[-1]].own.append(i)
        before = heads[i]
    return _sort_parents_first(nodes)


def _sort_parents_first(nodes: list[_Node]) -> list[_Node]:
    """The same tree with parents before their children."""
    order = sorted(range(len(nodes)), key=lambda i: nodes[i].depth)
    place = {old: new for new, old in enumerate(order)}
    return [_Node(nodes[i].depth, place.get(nodes[i].parent, -1), nodes[i].own) for i in order]


def _choose_prefixes(nodes: list[_Node]) -> list[bool]:
    """Which nodes are the shared prefix of the prompts below them that no chosen node is nearer to."""
    saved = [_SavedTokens() for _ in nodes]
    until: list[
        int
    ] = []  # from the last node to the first: it is chosen where the nearest chosen one is above this depth
    for i in reversed(range(len(nodes))):
        node, own = nodes[i], len(nodes[i].own)
        best = node.depth * (own - 1) + saved[i].at(node.depth)
        saved[i].slope += own
        until.append(saved[i].at_least(best))
        if node.parent >= 0:
            saved[i].end(nodes[node.parent].depth)
            saved[node.parent] = saved[node.parent].add(saved[i])
    opened: list[bool] = []
    nearest: list[int] = []  # depth of the nearest chosen node, itself included
    for node, depth in zip(nodes, reversed(until), strict=True):
        above = nearest[node.parent] if node.parent >= 0 else 0
        opened.append(above < depth)
        nearest.append(node.depth if opened[-1] else above)
    return opened


class _SavedTokens:
    """Tokens that need not be read below a node, at best, by the depth of the nearest chosen node above.

    It is a convex function of that depth, linear between whole numbers. So a node adds at most two bends to it, and it is not
    stored depth by depth.

    low, slope: at depth 0;  bends: (depth, by how much the slope grows there), ascending
    """

    def __init__(self) -> None:
        self.low = self.slope = 0
        self.bends: list[tuple[int, int]] = []
        self._sum = self._moment = 0  # of the growths, and of growth times depth

    def at(self, depth: int) -> int:
        """The tokens at this depth, which is the last bend or deeper."""
        return self.low + (self.slope + self._sum) * depth - self._moment

    def end(self, depth: int) -> None:
        """Forget the function behind that depth."""
        while self.bends and self.bends[-1][0] >= depth:
            self._count([self.bends.pop()], -1)

    def add(self, other: _SavedTokens) -> _SavedTokens:
        """Return the sum of both; the object with more bends is changed to hold it."""
        few, many = sorted((self, other), key=lambda x: len(x.bends))
        many.low, many.slope = many.low + few.low, many.slope + few.slope
        for bend in few.bends:
            insort(many.bends, bend)
        many._count(few.bends)
        return many

    def at_least(self, least: int) -> int:
        """Raise the function to at least `least` everywhere; return the first depth at which it was lower."""
        if self.low >= least:
            return 0
        depth = 0
        tokens = self.low
        slope = self.slope
        passed = 0
        while passed < len(self.bends) and tokens + slope * (self.bends[passed][0] - depth) < least:
            at, growth = self.bends[passed]
            tokens += slope * (at - depth)
            depth = at
            slope += growth
            passed += 1
        first = depth - (tokens - least) // slope
        step = tokens + slope * (first - depth) - least
        new = [(first - 1, step), (first, slope - step)] if step else [(first, slope)]
        self._count(self.bends[:passed], -1)
        self._count(new)
        self.low = least
        self.slope = 0
        self.bends[:passed] = new
        return first

    def _count(self, bends: Sequence[tuple[int, int]], sign: int = 1) -> None:
        self._sum += sign * sum(growth for _, growth in bends)
        self._moment += sign * sum(growth * at for at, growth in bends)
