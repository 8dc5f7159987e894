"""RSD-S: a draft-model tree grown by stochastic beam search, sequences drawn without replacement."""

from __future__ import annotations

import heapq
import math
from typing import ClassVar, NamedTuple

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.model_tree import ModelTree, Siblings, sibling_groups


class _BeamSlot(NamedTuple):
    """A possible next child of a node in the level above: the best slot is the smallest tuple.

    least: minus its score G';  row: the node's place in the level;  phi: log probability of the node's sequence and of a next
    token that none of the earlier children has;  siblings: the children that this one is the next of
    """

    least: float
    row: int
    phi: float
    siblings: Siblings


@component
class RSDS(DrawnDrafter):
    """Recursive speculative decoding with stochastic beam search.

    A level holds the `width` continuations of the level above with the largest perturbed scores G', whichever nodes they
    continue.

    Each node has phi, the log probability of its path, and G, its phi with Gumbel noise. Its continuations also get Gumbel
    noise, under the condition that the largest of them is G. So the sequences of a level are drawn without replacement from the
    draft model's distribution of sequences. Siblings, in falling G', are drawn from its distribution of tokens.

    The paper perturbs all V continuations of a node, then sorts. Here they are generated lazily, in falling order. The best has
    the score G. The next one after a score g has a Gumbel of location phi + log(mass left), cut off at g. Its token is an
    independent draw from what is left. The distribution is the same, with two uniforms per node. A score only decides whether
    there is one more child, never which one, so verification stays exact.

    Under a greedy sampler nothing is perturbed, so it is beam search on the draft model. width 1 is a chain. Lossless. Costs
    one pass of the draft model per level. Notes: `scores`, G' of each node, and `phi`, in nats.
    """

    title = "RSD-S (stochastic beam search)"
    source = "Jeon et al. 2024, arXiv:2402.14160, RSD-S; Kool et al. 2019, arXiv:1903.06059, stochastic beam search"
    lanes = ("draft",)
    tells: ClassVar[dict[str, Note]] = {
        "scores": Note(
            "node", "score", "nats", "perturbed log-probability of the path: the largest of a level stay"
        ),
        "phi": Note("node", "phi", "nats", "log-probability of the path", summed=True),
    }

    width: int = param(
        4, low=1, high=16, unit="nodes", help="beam width: nodes in each level of the draft tree (W)"
    )
    depth: int = param(4, low=1, high=16, unit="levels", help="depth of the draft tree (L)")

    @property
    def branches(self) -> bool:
        return self.width > 1

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        tree, frontier = ModelTree(ctx), [ROOT]
        phi, score = {ROOT: 0.0}, {ROOT: 0.0}
        for level in range(min(self.depth, ctx.room)):
            rows = tree.read(frontier) if level else tree.read_root()
            siblings = sibling_groups(tree, frontier, rows, self.width)
            scores = [
                _best_log_probability(phi[x], y) if tree.greedy else score[x]
                for x, y in zip(frontier, siblings, strict=True)
            ]
            slots = [_BeamSlot(-scores[i], i, phi[x], siblings[i]) for i, x in enumerate(frontier)]
            heapq.heapify(slots)
            level_nodes: list[int] = []
            while slots and len(level_nodes) < self.width:
                slot = heapq.heappop(slots)
                node, taken = slot.siblings.grow()
                phi[node], score[node] = slot.phi + math.log(taken), -slot.least
                level_nodes.append(node)
                if slot.siblings.has_next and taken < 1 and len(level_nodes) < self.width:
                    left = slot.phi + math.log1p(-taken)
                    place = ctx.position + level
                    after = (
                        _best_log_probability(left, slot.siblings)
                        if tree.greedy
                        else draw_gumbel_below(left, -slot.least, ctx.chance, place)
                    )
                    heapq.heappush(slots, _BeamSlot(-after, slot.row, left, slot.siblings))
            frontier = level_nodes
        tree.close()
        nodes = range(len(tree.tokens))
        notes = {"scores": [round(score[x], 4) for x in nodes], "phi": [round(phi[x], 4) for x in nodes]}
        return tree.to_draft(self.proposes, notes=notes)


def _best_log_probability(phi: float, siblings: Siblings) -> float:
    """Log probability of the likeliest continuation."""
    return phi + math.log(siblings.next_probability)


def draw_gumbel_below(location: float, bound: float, chance: Chance, position: int) -> float:
    """A Gumbel draw with `location`, conditioned to be below `bound`: location - log(exp(location - bound) - log u)."""
    spread, above = -math.log(1.0 - chance.uniform(position, "draft")), location - bound
    if above < 0 < spread:
        return location - math.log(math.exp(above) + spread)
    return bound - math.log1p(spread * math.exp(-max(above, 0.0)))  # the same, where exp(above) may overflow
