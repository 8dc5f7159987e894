"""Draft, Trial and Verdict: what a drafter proposes, and what the target made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.lazy import lazy
from decodescope.engine.core.tree import depths
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.records.exits import Exit

ROOT = -1
Proposal = Literal["onehot", "iid", "without_replacement", "mixed"]
Origin = Literal["bonus", "residual", "correction", "target", "draft"]


@dataclass
class Slots:
    """Rows of the pass after the tree that have no token: the target's output there is a guess at later tokens.

    at:      S; the node that each belongs to, ROOT or its index; it sees that node and what the node sees
    steps:   S; how many positions after that node it is, from 1
    visible: bool [S, S]; which of the slots it sees, itself among them
    embeds:  float [S, d_model], what enters the first layer there
    prefix:  float [L, 2, H_kv, P, D] or None; keys and values by layer that every slot sees and no other row, as
             `Feed.prefix` has them
    No row of the tree sees a slot, no rule reads one, and none is committed; a prefix is never in a cache.
    """

    at: list[int]
    steps: list[int]
    visible: Tensor
    embeds: Tensor
    prefix: Tensor | None = None

    def __len__(self) -> int:
        return len(self.at)

    def visibility_mask(self, tree: Tensor) -> Tensor:
        """bool [N + 1 + S, N + 1 + S]: what each row sees, the slots last, where the rows of the tree see `tree`."""
        n, rows = len(tree), torch.tensor(self.at) + 1
        seen = torch.zeros(n + len(self), n + len(self), dtype=torch.bool)
        seen[:n, :n] = tree
        seen[n:, :n] = tree[rows]
        seen[n:, n:] = self.visible
        return seen


@dataclass
class Draft:
    """A tree of candidate tokens that grows from the root, the last committed token.

    tokens:     N ids; a parent comes before its children, siblings in draw order
    parents:    N; ROOT (-1) or the index of an earlier node
    kind:       how the nodes were chosen. "onehot": without chance. "iid": each drawn from its row of q. "without_
                replacement": siblings drawn one after the other from what the earlier ones left. "mixed": siblings of different
                kinds, or from the distributions of different models
    q:          float [M, V] or None; distributions that nodes were drawn from, after the sampler
    q_row:      N; the row of q that node i was drawn from, given the siblings drawn before it; -1: chosen without chance
    u:          N uniforms that drew the nodes, or None
    acceptable: N or None; False marks an auxiliary node: it is in the pass, but is never committed, nor counted as drafted
    visible:    bool [N, N] or None; None: each node sees its ancestors and itself
    notes:      figures for the trace (matched span, template, ...);  named: ids that these name and the tree does not
    enter, states: the layer at which the target's pass may begin, and what enters it, float [1, N + 1, d_model]: the
                drafter has run the layers below over the root and every node, and their rows are pending there. 0: read again
    entries:    the layer at which the root and each node enter, as in `Feed.entries`; None: all of them at `enter`
    slots:      rows of the same pass in which the target guesses for the next draft, or None
    exits:      exit records of passes that drafted and were tested for an early exit, for the trace
    logits:     place (ROOT or a node) -> float [V], the logits that its children were chosen from, before the sampler, over the
                target's ids (-inf: excluded); kept only if the step is recorded (`Context.keep_logits`), for the trace
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    kind: Proposal = "onehot"
    q: Tensor | None = None
    q_row: list[int] | None = None
    u: list[float | None] | None = None
    acceptable: list[bool] | None = None
    visible: Tensor | None = None
    source: str = ""
    notes: dict[str, Any] | None = None
    enter: int = 0
    states: Tensor | None = None
    slots: Slots | None = None
    exits: list[Exit] = field(default_factory=list)
    entries: list[int] | None = None
    named: list[int] = field(default_factory=list)
    logits: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.tokens):
            raise ValueError(f"a draft of {len(self.tokens)} tokens has {len(self.parents)} parents")
        if self.kind != "onehot" and (self.q is None or self.q_row is None):
            raise ValueError(
                f"a draft of kind {self.kind!r} must say which distribution each node was drawn from"
            )

    @classmethod
    def chain(cls, tokens: list[int], **more: Any) -> Draft:
        """A draft without branches."""
        return cls(list(tokens), list(range(ROOT, len(tokens) - 1)), **more)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def drafted_count(self) -> int:
        """Nodes without the passengers: those that may be accepted."""
        return len(self.tokens) if self.acceptable is None else sum(self.acceptable)

    @property
    def auxiliary_nodes(self) -> list[int]:
        """Nodes that ride the pass and are never accepted, ascending."""
        return [] if self.acceptable is None else [node for node, ok in enumerate(self.acceptable) if not ok]

    @lazy
    def is_chain(self) -> bool:
        """True if no place has two continuations."""
        return all(parent == i - 1 for i, parent in enumerate(self.parents))

    @lazy
    def first_rows(self) -> list[int] | None:
        """Per row of the pass, the root's first, the first row that continues the text by the same tokens; None: no two rows
        do. Such rows have one distribution, but a pass may round them differently: all are judged by the first one's."""
        if self.is_chain or self.visible is not None:
            return None
        firsts: dict[tuple[int, int], int] = {}
        rows = [0]
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            rows.append(firsts.setdefault((rows[parent + 1], token), node + 1))
        return rows if len(firsts) < len(self.tokens) else None

    @lazy
    def depth(self) -> list[int]:
        """Per node, its distance from the root; children of the root have depth 1."""
        return depths(self.parents)

    @lazy
    def _children_by_node(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {}
        for i, parent in enumerate(self.parents):
            if self.acceptable is None or self.acceptable[i]:
                children.setdefault(parent, []).append(i)
        return children

    def children(self, node: int) -> list[int]:
        """The acceptable continuations of `node`, in draw order."""
        return self._children_by_node.get(node, [])

    def law(self, node: int) -> Tensor | None:
        """float [V]: what node was drawn from; None if it was chosen without chance."""
        return self.q[self.q_row[node]] if self.was_drawn(node) else None  # type: ignore[index] # there is a row of it

    def draw_probability(self, node: int) -> float:
        """The probability that this distribution gives to the node's token; 1 if the node was chosen without chance."""
        if not self.was_drawn(node):
            return 1.0
        row = self.q_row[node]  # type: ignore[index] # there is a row of it
        return float(self._readable_laws[row, self.tokens[node]])

    @lazy
    def _readable_laws(self) -> Tensor | np.ndarray:
        assert self.q is not None
        return as_array(self.q)

    def was_drawn(self, node: int) -> bool:
        """True if `node` was drawn from a distribution that is present."""
        return self.q is not None and self.q_row is not None and self.q_row[node] >= 0

    def ancestry(self) -> Tensor:
        """bool [N + 1, N + 1], the root first; row i marks i and its ancestors. Not to be written into."""
        return _ancestry_mask(tuple(self.parents))

    def build_feed(self, root: int, start: int, device: torch.device | str = "cpu") -> Feed:
        """The root and the tree as one pass of N + 1 rows; `start` is the root's position."""
        if self.slots is not None:
            return self._with_slots(self.slots, root, start, device)
        if self.is_chain and self.visible is None:
            feed = Feed.causal_chain([root, *self.tokens], start, device)
            feed.enter = self.enter
            feed.states = self.states
            feed.entries = self.entries
            return feed
        ids, places = [root, *self.tokens], [start, *(start + depth for depth in self.depth)]
        tokens, positions = torch.tensor([ids, places], device=device).chunk(2)  # one copy up for both
        visible = self.ancestry()
        if self.visible is not None:
            visible = visible.clone()
            visible[1:, 1:] = self.visible
        mask, states = visible[None].to(device), self.states
        return Feed(tokens, positions, mask, enter=self.enter, states=states, highest=max(places), ids=ids)

    def _with_slots(self, slots: Slots, root: int, start: int, device: torch.device | str) -> Feed:
        """The pass with the slots after the tree; the ids in their rows are never read."""
        assert self.enter == 0 and self.visible is None, "slots ride a whole pass over a plain tree"
        n, depth = len(self) + 1, [0, *self.depth]
        places = depth + [depth[node + 1] + step for node, step in zip(slots.at, slots.steps, strict=True)]
        embeds = torch.nn.functional.pad(slots.embeds, (0, 0, n, 0))[None].to(device)
        return Feed(
            torch.tensor([[root, *self.tokens] + [root] * len(slots)], device=device),
            torch.tensor([places], device=device) + start,
            slots.visibility_mask(self.ancestry())[None].to(device),
            embeds=embeds,
            embed_rows=torch.arange(n + len(slots), device=device) >= n,
            slots=len(slots),
            prefix=slots.prefix,
            highest=start + max(places),
        )


@dataclass
class Trial:
    """One acceptance test. p: the target's probability of the node's token; r: what was left of it after earlier
    siblings; q: the proposal's; u: the uniform, or None; threshold: what u had to stay below (or the rule's bound).
    num, den: what decided, where it is not r and q: u * den < num, or without a draw den < num."""

    node: int
    p: float
    r: float
    q: float
    u: float | None
    threshold: float
    ok: bool
    num: float | None = None
    den: float | None = None


@dataclass
class Verdict:
    """The target's judgement of a draft.

    path:   accepted nodes from the root down
    token:  the target's own token after them; None if the text ended inside the path
    origin: "bonus" (everything on the path was accepted), "residual" (drawn from what was left), "correction" (greedy),
            "target" (nothing was drafted)
    trials: the tests, in order;  u, low, high: the uniform that drew `token` and its interval of the distribution
    rule:   what the rule adds so that the verdict can be re-derived
    places: (place, distribution [V] or None) for every place visited, for the trace; None if the choice is greedy
    forced: nodes that were settled beforehand, not tested
    """

    path: list[int]
    token: int | None
    origin: Origin
    trials: list[Trial] = field(default_factory=list)
    u: float | None = None
    low: float = 0.0
    high: float = 1.0
    rule: dict[str, Any] | None = None
    places: list[tuple[int, Tensor | None]] = field(default_factory=list)
    forced: list[int] = field(default_factory=list)

    @property
    def rows(self) -> list[int]:
        """The rows of the pass that are committed by it: the root's and those of the path. The last emitted token is the next
        root: whatever it is, its row is not."""
        path = self.path if self.token is not None else self.path[:-1]
        return [0, *(node + 1 for node in path)]


def as_array(law: Tensor) -> Tensor | np.ndarray:
    """Distributions in a form for reading single numbers: on the CPU a numpy array, which takes a tenth of the time."""
    return law.numpy() if law.is_cpu else law


@lru_cache(maxsize=64)
def _ancestry_mask(parents: tuple[int, ...]) -> Tensor:
    """bool [N + 1, N + 1] of a tree with these parents; kept, since many drafters grow the same tree in each step."""
    rows = [1]
    for i, parent in enumerate(parents):
        rows.append(rows[parent + 1] | 1 << (i + 1))
    return unpack_bit_rows(tuple(rows), len(rows))


@lru_cache(maxsize=256)
def unpack_bit_rows(rows: tuple[int, ...], width: int) -> Tensor:
    """bool [R, width]: the bits of each row, the lowest first. Kept; not to be written into."""
    size = (width + 7) // 8
    packed = np.frombuffer(b"".join(row.to_bytes(size, "little") for row in rows), np.uint8).reshape(
        len(rows), size
    )
    return torch.from_numpy(np.unpackbits(packed, 1, width, "little").view(np.bool_))
