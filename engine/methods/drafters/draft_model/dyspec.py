"""DySpec: a draft-model tree that grows, token by drawn token, where the next guess is most likely to be accepted."""

from __future__ import annotations

import heapq
from typing import ClassVar, NamedTuple

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.model_tree import ModelTree, Siblings, sibling_groups


class _TreeSlot(NamedTuple):
    """A node that may be added: the best one is the smallest tuple.

    least: minus its value, the estimated probability that verification reaches it;  row: its parent's place in the level;
    siblings: the children that this one is the next of
    """

    least: float
    row: int
    siblings: Siblings


@component
class DySpec(DrawnDrafter):
    """Draft the tree of `nodes` nodes with the most nodes that verification is expected to reach.

    The expectation assumes that a token y is accepted with R[y], the draft model's probability when it was drawn. With 1 -
    R[y], verification goes on to the next sibling.

    The first slot is under the root, with value 1. The most valuable slot (value v, distribution R) becomes a node: y is drawn
    from R. The node opens two slots. The slot below it has value v R[y] and the draft model's distribution after y. The slot
    next to it has value v (1 - R[y]) and R without y. Values only fall, so always taking the largest is optimal.

    Taking one slot at a time needs one pass of the draft model per node. Here a pass reads a whole level. It draws all slots of
    the level with at least the value of the `nodes`-th best slot known so far, then reads the level below. In the end the
    `nodes` best stay. The tree is the same. A slot's value is known before its token, so no node is dropped for its token,
    which would bias verification. The deepest level is `depth`.

    Under a greedy sampler y is the likeliest token of R instead, and R is the draft model's own distribution. Lossless. Costs
    one pass of the draft model per level. Notes: `values` of the nodes, and the tokens of the step that are `expected` on that
    assumption, including the target's own.
    """

    title = "DySpec (dynamic tree)"
    source = "Xiong et al. 2024, arXiv:2410.11744, greedy expansion of the token tree"
    lanes = ("draft",)
    tells: ClassVar[dict[str, Note]] = {
        "values": Note("node", "value", what="estimated probability that the check gets to the node"),
        "expected": Note("series", "expected", "tokens", "of the step, if these estimates hold"),
    }

    nodes: int = param(16, low=1, high=128, unit="nodes", help="maximum size of the draft tree")
    depth: int = param(8, low=1, high=16, unit="levels", help="maximum depth of the draft tree")

    @property
    def branches(self) -> bool:
        return self.nodes > 1

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        tree = ModelTree(ctx)
        value = {}
        gain = {}
        # values of the best slots known so far, a heap: the smallest is the threshold
        top = [0.0] * (self.nodes - 1) + [1.0]
        below = {ROOT: 1.0}  # node of the last grown level -> value of the slot below it
        for level in range(1, min(self.depth, ctx.room) + 1):
            frontier = [node for node, v in below.items() if v >= top[0]]
            if not frontier:
                break
            rows = tree.read_root() if level == 1 else tree.read(frontier)
            siblings = sibling_groups(tree, frontier, rows, self.nodes)
            slots = [_TreeSlot(-below[x], i, siblings[i]) for i, x in enumerate(frontier)]
            heapq.heapify(slots)
            below, deeper = {}, level < min(self.depth, ctx.room)
            while slots and -slots[0].least >= top[0]:
                slot = heapq.heappop(slots)
                node, taken = slot.siblings.grow()
                value[node] = -slot.least
                gain[node] = value[node] * taken
                if deeper:
                    below[node] = gain[node]
                    heapq.heappushpop(top, gain[node])
                if slot.siblings.has_next and taken < 1:
                    beside = value[node] * (1 - taken)
                    heapq.heappushpop(top, beside)
                    heapq.heappush(slots, _TreeSlot(-beside, slot.row, slot.siblings))
        tree.close()
        best = sorted(sorted(value, key=lambda x: (-value[x], x))[: self.nodes])
        values = [round(value[x], 4) for x in best]
        notes = {"values": values, "expected": round(1 + sum(gain[x] for x in best), 4)}
        return tree.to_draft(self.proposes, best, notes)
