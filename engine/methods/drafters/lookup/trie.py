"""Trie: draft from a trie of the prompt and the text so far, the most frequent branches first."""

from __future__ import annotations

import heapq
from itertools import count
from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.copy_note import COPIED
from ..shared.forest import Forest, TrieNode


@component
class Trie(Drafter):
    """Lookahead's trie (PAIN, as its repository is called; not the Jacobi method of the same name).

    Every window of `depth` + 1 tokens of the prompt, and of the growing text, is entered into the trie of its first token. A
    node counts how often its path occurs in the prompt (f_in) and in the text (f_out). To draft, the last `max_suffix` tokens
    are looked up, then one less, ..., until there are `depth` nodes below them (`nodes`, if that is less). From the last
    lookup, the `nodes` best by (1 - `output_weight`) f_in + `output_weight` f_out are drafted, depth first. Unless
    `output_weight` is large, the text decides where the prompt does not. Ties: the shallower first, then the child of the
    better parent, then the older.

    Counts decay. When more than `max_output_nodes` nodes of a trie have an f_out, each f_out in it is halved, and values of 1
    and less become 0. Nodes without a count are removed, and windows that still grow there end. No count ever exceeds its
    parent's, so the best nodes are a tree. A token costs `depth` + 1 dictionary look-ups; a draft costs no pass of any model.
    The draft is chosen without chance: lossless under any sampler.

    The original keeps f_out across requests, filled from other answers for its figures, and zeroes f_in after each. Here a run
    is one request and starts empty. The original's second bound, 65536 nodes per trie, is left out, because a prompt is entered
    once. The default of `max_suffix` is that of the repository.
    """

    title = "Trie (Lookahead)"
    source = "Zhao et al. 2023, arXiv:2312.12728; alipay/PainlessInferenceAcceleration, lookahead/common/lookahead_cache.py"
    tells: ClassVar[dict[str, Note]] = {
        "f_in": Note("node", "in prompt", "times", "how often the path to the node stands in the prompt"),
        "f_out": Note("node", "in text", "times", "how often it stands in the text, after decay"),
        "copied": COPIED,
        "matched": Note("set", "matched", "token", "the suffix that was looked up"),
        "dropped": Note("series", "dropped", "nodes", "that decay took from the tries since the last draft"),
    }

    nodes: int = param(
        64, low=1, high=256, unit="nodes", help="maximum size of the draft tree (decoding length)"
    )
    depth: int = param(12, low=1, high=32, unit="tokens", help="maximum length of a branch (branch length)")
    max_suffix: int = param(2, low=1, high=16, unit="tokens", help="longest suffix of the text to look up")
    output_weight: float = param(
        1e-4,
        low=0.0,
        high=1.0,
        step=1e-4,
        help="weight of counts in the generated text; counts in the prompt get the rest",
    )
    max_output_nodes: int = param(
        512,
        low=1,
        high=65536,
        unit="nodes",
        help="limit on nodes per trie with counts from the generated text; above it counts are halved",
    )

    @property
    def branches(self) -> bool:
        return self.nodes > 1

    def begin(self, ctx: Context) -> None:
        self._forest, self._said = Forest(self.depth + 1, self.max_output_nodes), 0
        self._forest.extend(ctx.tokens, ctx.prompt)

    def propose(self, ctx: Context) -> Draft:
        text = ctx.tokens
        deepest = min(self.depth, ctx.room)
        draft = Draft()
        matched = 0
        self._forest.extend(text, ctx.prompt)
        for n in range(min(self.max_suffix, len(text)), 0, -1):
            place = self._forest.find(text[-n:])
            below = Draft() if place is None else self._best_nodes(place, deepest)
            if below:
                draft, matched = below, n
            if len(below) >= min(self.depth, self.nodes):
                break
        if draft.notes is not None:
            draft.notes |= {"matched": text[-matched:], "dropped": self._forest.dropped - self._said}
            self._said = self._forest.dropped
        return draft

    def _best_nodes(self, place: TrieNode, deepest: int) -> Draft:
        """The `nodes` best nodes below `place`, of at most `deepest` levels: taken best first from a heap, then ordered depth
        first.
        """
        taken: list[tuple[int, TrieNode, int]] = []  # token, node, its parent's place in this list
        below: dict[int, list[int]] = {}
        heap: list[
            tuple[float, int, int, int, int, TrieNode]
        ] = []  # (-score, depth, turn, token, parent, node)
        turn = count()

        def reach(node: TrieNode, depth: int, parent: int) -> None:
            for token, x in node.children.items() if depth <= deepest else ():
                score = (1 - self.output_weight) * x.f_in + self.output_weight * x.f_out
                heapq.heappush(heap, (-score, depth, next(turn), token, parent, x))

        reach(place, 1, ROOT)
        while heap and len(taken) < self.nodes:
            _, depth, _, token, parent, node = heapq.heappop(heap)
            below.setdefault(parent, []).append(len(taken))
            taken.append((token, node, parent))
            reach(node, depth + 1, len(taken) - 1)
        order, stack = [], below.get(ROOT, [])[::-1]
        while stack:
            order.append(stack.pop())
            stack += below.get(order[-1], [])[::-1]
        at = {ROOT: ROOT, **{i: node for node, i in enumerate(order)}}
        nodes = [taken[i] for i in order]
        notes = {"f_in": [x.f_in for _, x, _ in nodes], "f_out": [x.f_out for _, x, _ in nodes]}
        notes["copied"] = [x.last for _, x, _ in nodes]
        return Draft(
            [x for x, _, _ in nodes], [at[parent] for _, _, parent in nodes], source="trie", notes=notes
        )
