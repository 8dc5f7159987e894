"""ADED: a tree search over trigrams, weighted by the newest text, finds the continuations to draft."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.datastore import HELP, LARGEST, load_datastore
from ..shared.tree_search import SearchNode, TrigramWeights, load_successor_table, search_tree, visited_nodes

NODES = 64


@component
class Aded(Drafter):
    """Adaptive draft-verification.

    For each pair of tokens, a table holds the 12 most frequent third tokens of a datastore, with their probabilities. Before
    each draft, the trigrams of the last 16 tokens gain 0.04, up to 3. They are then weights, no longer probabilities. A Monte
    Carlo tree search starts at the last two tokens and runs `iterations` times, `depth` tokens deep. It selects by mean reward
    and an exploration term that favours likely and rarely visited steps. The reward of a search is 1 plus the weights of its
    steps. The `max_paths` most visited paths are drafted, each with its likeliest successor appended.

    The draft is chosen without knowing the target's draws: lossless under any sampler. Costs no pass of any model, but Python
    steps in proportion to iterations x depth. Every draft's search begins with the same seed, so a draft follows from the text
    alone. The official code's length of 4 counts the last known token, so it searches 3 deep. Among equals it first visits the
    one that a hash table lists first; this code visits the likelier one. Its last cut is by the sum of different tokens over
    all paths; here it is a limit of 64 nodes, in the order of visits. The datastore is that of `rest`.
    """

    title = "ADED (trigrams and tree search)"
    source = "Liu et al. 2024, arXiv:2407.12021; liuxukun2000/Adaptix, DraftRetriever/src/lib.rs, mcts_sub.rs"
    tells: ClassVar[dict[str, Note]] = {
        "visits": Note("node", "visits", "searches", "that went through the node"),
        "mean": Note("node", "reward", what="mean reward of these"),
        "prior": Note("node", "weight", what="of the trigram that leads to the node"),
    }

    datastore: str = param("", file=True, most=LARGEST, help=HELP)
    iterations: int = param(150, low=1, high=2000, help="iterations of the tree search before each draft")
    depth: int = param(
        3,
        low=1,
        high=16,
        unit="tokens",
        help="maximum depth of the tree search; drafts may be one token longer",
    )
    max_paths: int = param(
        24, low=1, high=64, unit="paths", help="number of most visited search paths to draft"
    )

    @property
    def branches(self) -> bool:
        return True

    def begin(self, ctx: Context) -> None:
        self._weights = TrigramWeights(
            load_successor_table(load_datastore(self.datastore, ctx.encode, ctx.target.decoder.vocab))
        )

    def propose(self, ctx: Context) -> Draft:
        self._weights.raise_recent(ctx.tokens)
        if len(ctx.tokens) < 2 or ctx.room == 0:
            return Draft()
        root = search_tree(
            (ctx.tokens[-2], ctx.tokens[-1]), self._weights.successor_weights, self.depth, self.iterations
        )
        # a parent is visited no less than its children
        kept = sorted(visited_nodes(root), key=lambda x: -x.visits)[: self.max_paths]
        ends = [self._heaviest_child(x) for x in kept]
        at: dict[tuple[int, ...], int] = {(): ROOT}  # path -> node
        nodes: list[SearchNode] = []
        for x in [*kept, *ends]:
            if x is not None and x.path not in at and len(nodes) < NODES and len(x.path) <= ctx.room:
                at[x.path] = len(nodes)
                nodes.append(x)
        notes = {
            "visits": [x.visits for x in nodes],
            "mean": [round(x.mean, 4) for x in nodes],
            "prior": [round(x.prior, 4) for x in nodes],
        }
        return Draft(
            [x.path[-1] for x in nodes], [at[x.path[:-1]] for x in nodes], source="tree search", notes=notes
        )

    def _heaviest_child(self, at: SearchNode) -> SearchNode | None:
        """The heaviest continuation of a place, from the search if the search visited it."""
        row = self._weights.successor_weights(at.pair)
        if not row:
            return None
        return at.visited[0] if at.visited else at.child(*row.sorted_weights[0])
