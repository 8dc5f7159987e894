"""Plan: which prompts of a batch are read behind which common prefix. No torch.

BatchLLM (Zheng et al. 2024, arXiv:2412.03594) knows all prompts beforehand: it puts them into a prefix tree, and since a prompt
is to have one shared prefix (one level, as the attention over it wants it), chooses for each of them how long that is. A long
prefix saves much for few prompts, a short one little for many, and what lies above a chosen node is read once more for it. The
paper decides that node by node, by what is won and lost there (so summaries of it say; its code is not public); here the best
choice of all is found, by dynamic programming over a node and its nearest chosen ancestor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Group:
    """Prompts that have their first `prefix` tokens in common, which are read once; `members`: their numbers, ascending."""

    prefix: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Groups, each prompt in one of them, in the order in which they are decoded.

    tokens: of all prompts;  read: of them so many are read;  least: so many were, could a prompt share several prefixes, one
    behind the other: the nodes of the whole prefix tree
    """

    groups: tuple[Group, ...]
    tokens: int
    read: int
    least: int


@dataclass
class _Node:
    """A place in the prefix tree at which prompts part or end. own: numbers of those that end here."""

    depth: int
    parent: int
    own: list[int] = field(default_factory=list)


def planned(prompts: Sequence[Sequence[int]]) -> Plan:
    """A plan that reads the fewest tokens where each prompt has one shared prefix. The last token of a prompt is shared by
    none: it is read with the first pass that writes.

    Groups whose prompts are shortest on average come first: more is written beside what they read.
    """
    nodes = _tree(prompts)
    opened = _chosen(nodes)
    members: dict[int, list[int]] = {}
    alone: list[int] = []
    group_of: list[int | None] = []  # by node: its nearest chosen one, itself included
    for i, node in enumerate(nodes):
        group_of.append(i if opened[i] else None if node.parent < 0 else group_of[node.parent])
        of = group_of[i]
        (alone if of is None else members.setdefault(of, [])).extend(node.own)
    groups = [Group(nodes[i].depth, tuple(sorted(each))) for i, each in members.items()]
    groups += [Group(0, tuple(sorted(alone)))] if alone else []
    groups.sort(key=lambda x: (sum(len(prompts[i]) for i in x.members) / len(x.members), x.members))
    tokens = sum(map(len, prompts))
    read = tokens - sum(x.prefix * (len(x.members) - 1) for x in groups)
    last = len(prompts)  # the last tokens, each read for itself
    least = last + sum(node.depth - (nodes[node.parent].depth if node.parent >= 0 else 0) for node in nodes)
    return Plan(tuple(groups), tokens, read, least)


def _tree(prompts: Sequence[Sequence[int]]) -> list[_Node]:
    """The prefix tree of the prompts without their last tokens, parents before their children."""
    heads = [tuple(x[:-1]) for x in prompts]
    nodes = [_Node(0, -1)]
    path = [0]  # the nodes above the prompt that was put in last
    before: tuple[int, ...] = ()
    for i in sorted(range(len(heads)), key=heads.__getitem__):
        shared = _common(before, heads[i])
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
    return _sorted(nodes)


def _sorted(nodes: list[_Node]) -> list[_Node]:
    """The same tree with parents before their children."""
    order = sorted(range(len(nodes)), key=lambda i: nodes[i].depth)
    place = {old: new for new, old in enumerate(order)}
    return [_Node(nodes[i].depth, place.get(nodes[i].parent, -1), nodes[i].own) for i in order]


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of their common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _chosen(nodes: list[_Node]) -> list[bool]:
    """Which nodes are the shared prefix of the prompts below them that no chosen node is nearer to.

    saved[i][k]: tokens that need not be read below node i, at best, where its nearest chosen ancestor is the k-th node on the
    way down to it; 0: the root, whose prefix is empty.
    """
    ways: list[list[int]] = []  # the nodes from the root down to each
    for i, node in enumerate(nodes):
        ways.append([*(ways[node.parent] if node.parent >= 0 else []), i])
    children: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes[1:], 1):
        children[node.parent].append(i)
    saved: list[list[int]] = [[] for _ in nodes]
    better: list[list[bool]] = [[] for _ in nodes]
    for i in reversed(range(len(nodes))):
        node, own = nodes[i], len(nodes[i].own)
        open_ = node.depth * (own - 1) + sum(saved[child][len(ways[i]) - 1] for child in children[i])
        for k, above in enumerate(ways[i][:-1] or [i]):
            shut = nodes[above].depth * own + sum(saved[child][k] for child in children[i])
            better[i].append(open_ > shut)
            saved[i].append(max(open_, shut))
    opened: list[bool] = []
    nearest: list[int] = []
    for i, node in enumerate(nodes):
        k = nearest[node.parent] if node.parent >= 0 else 0
        opened.append(better[i][k])
        nearest.append(len(ways[i]) - 1 if opened[i] else k)
    return opened
