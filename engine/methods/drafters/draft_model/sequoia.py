"""Sequoia: a draft-model tree; a dynamic programme fits its shape to the acceptance rates of children."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.shared.verify_cost import verify_costs
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.model_tree import ModelTree
from ..shared.trees import SHAPED, SequoiaTable, Template, TemplateGrowth, sequoia_tree

# Probability that the first, second, ... child of a node is the accepted one. Measured on the shipped pair lab and lab-draft
# with trees of one level and 8 nodes, 670 places in 8 texts of 60 tokens, under greedy, T = 0.6 and T = 1 alike.
RATES = (0.64, 0.1, 0.037, 0.028, 0.034, 0.019, 0.019, 0.006)
PRIOR = 32  # weight of RATES, in places, at the start of a measured vector
EVERY = 16  # steps between rebuilds of the tree from the measured rates


@component
class Sequoia(DrawnDrafter):
    """Draft a tree of fixed shape.

    Each child is drawn without replacement from the draft model's distribution after its parent. Children are verified in the
    order of the draws. Of all trees with at most `nodes` nodes and `depth` levels, the shape has the most expected accepted
    tokens. The expectation assumes that the b-th child of any node is the accepted one with probability P[b].

    P is RATES, unless rates is "measured". Then P[b] is a share of the places that verification visited so far and that had a
    b-th child: those that accepted this child. RATES counts as 32 places. The original measures P beforehand, with a wide tree
    of one level. Every 16 steps the tree is rebuilt for the following steps, so the text's distribution stays exact.

    With `hardware_aware`, size and depth within these limits are those with the most expected tokens per microsecond of a step.
    A step is depth passes of the draft model and one of the target, timed on this device (the paper's hardware-aware step).

    Under a greedy sampler the children are the most likely tokens. Lossless. Costs one pass of the draft model per level, all
    its nodes at once. Notes: `ranks` of the nodes, and the tokens `expected` of a step.
    """

    title = "Sequoia"
    source = "Chen et al. 2024, arXiv:2402.12374, tree construction; Infini-AI-Lab/Sequoia, tree_search.py, Tree/SpecTree.py"
    lanes = ("draft",)
    tells: ClassVar[dict[str, Note]] = SHAPED

    nodes: int = param(24, low=1, high=128, unit="nodes", help="maximum size of the draft tree")
    depth: int = param(6, low=1, high=16, unit="levels", help="maximum depth of the draft tree")
    acceptance_rates: str = param(
        "fixed",
        choices=("fixed", "measured"),
        help="acceptance rate of the b-th child: built-in values, or measured during the run",
    )
    hardware_aware: bool = param(
        False, help="choose the tree size and depth that give the most tokens per microsecond on this device"
    )

    @property
    def branches(self) -> bool:
        return self.nodes > 1

    def begin(self, ctx: Context) -> None:
        self._seen = [float(PRIOR)] * len(RATES)
        self._taken = [PRIOR * rate for rate in RATES]
        self._steps = 0
        if self.hardware_aware:
            self.nodes, self.depth = self.best_size(ctx)
        self._template = self._plan()

    def _plan(self) -> Template:
        return sequoia_tree(self.vector, self.nodes, self.depth)

    @property
    def vector(self) -> tuple[float, ...]:
        """P, as known so far."""
        if self.acceptance_rates == "fixed":
            return RATES
        return tuple(taken / seen for taken, seen in zip(self._taken, self._seen, strict=True))

    def best_size(self, ctx: Context) -> tuple[int, int]:
        """The nodes and levels, up to those set, with the most expected tokens per microsecond."""
        sizes = sorted({min(2**i, self.nodes) for i in range(8)})
        target = verify_costs(ctx.target.decoder, [n + 1 for n in sizes], ctx.target.executor)
        lane = ctx.lanes["draft"]
        draft = verify_costs(lane.decoder, [1], lane.executor)[0]
        table = SequoiaTable(RATES, self.nodes, self.depth)
        levels = range(1, self.depth + 1)
        costs = {
            (n, deep): cost + deep * draft for n, cost in zip(sizes, target, strict=True) for deep in levels
        }
        return max(costs, key=lambda x: table.expected_tokens(*x) / costs[x])

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        growth, tree = TemplateGrowth(self._template, ctx.room), ModelTree(ctx)
        while growth.open:
            at = [place.at for place in growth.open]
            rows = tree.read_root() if at == [ROOT] else tree.read(at)
            children = tree.add_children(at, rows, [growth.child_count(place) for place in growth.open])
            growth.grow([[tree.tokens[node] for node in nodes] for nodes in children])
        tree.close()
        notes = {"ranks": growth.ranks, "expected": round(self._template.expected, 4)}
        return tree.to_draft(self.proposes, notes=notes)

    def observe(self, outcome: DraftOutcome) -> None:
        if self.acceptance_rates == "fixed":
            return
        path = outcome.verdict.path
        for place, accepted in zip([ROOT, *path], [*path, None], strict=True):
            for rank, child in enumerate(outcome.draft.children(place)):
                self._seen[rank] += 1
                self._taken[rank] += child == accepted
        self._steps += 1
        if self._steps % EVERY == 0:
            self._template = self._plan()
