"""RASD: continuations found by a search in texts are added to the tree of a draft model."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.datastore import HELP, LARGEST, load_datastore
from ..shared.model_tree import ModelTree
from ..shared.ngrams import SuffixIndex
from ..shared.trees import BeamPool
from ..shared.union import frequent_prefixes, merge_trees

HITS = 1000  # places counted, for the datastore and for the text each


@component
class RASD(Drafter):
    """Retrieval-augmented speculative decoding: fuse two trees.

    The draft model grows a tree as EAGLE-2 does: level by level the `width` nodes with the highest probability of their path
    get `width` continuations each, and the best `nodes` of all stay. A search finds earlier occurrences of the longest suffix
    of the text, of `max_suffix` down to `min_suffix` tokens, in the text itself and in the datastore. It takes what followed
    them. Pruning: a continuation stays if its first token is among the `top_k` likeliest of the draft model. The draft model's
    distribution after the root is already known. The `retrieved_nodes` most frequent prefixes of these continuations are the
    second tree. Fusion: each path of the second tree follows the first tree as far as it can, and its rest is added there. So
    the draft has the paths of both trees, each once. Under a greedy sampler it is accepted at least as far as either tree.

    The draft is chosen without chance: lossless under any sampler. Costs one pass of the draft model per level; the search is
    free. The authors' drafter is EAGLE-2's head. Ranking prefixes by frequency is a choice of this project (their ranking is
    recalled, not verified). Notes: `origin` of each node, "model", "retrieval" or "both"; `suffix` and `hits`, its length and
    the places found, for the text and for the datastore; `pruned`, the dropped continuations.
    """

    title = "RASD (draft model and retrieval)"
    source = "Quan et al. 2025, arXiv:2503.03434, pruning and fusion; the first tree: Li et al. 2024, arXiv:2406.16858"
    lanes = ("draft",)
    tells: ClassVar[dict[str, Note]] = {
        "origin": Note("node", "from", what="the draft model, the search, or both"),
        "suffix": Note(
            "grid",
            "suffix",
            "tokens",
            "length of the end of the text that was found",
            rows=["text", "datastore"],
        ),
        "hits": Note("grid", "hits", "places", "where it was found", rows=["text", "datastore"]),
        "pruned": Note("series", "pruned", "places", "whose next token the draft model does not like"),
    }

    nodes: int = param(12, low=1, high=64, unit="nodes", help="maximum size of the draft model's tree")
    depth: int = param(4, low=1, high=11, unit="levels", help="maximum depth of the draft model's tree")
    width: int = param(
        3,
        low=1,
        high=16,
        unit="nodes",
        help="nodes expanded per level of the draft model's tree, and continuations of each",
    )
    retrieved_nodes: int = param(
        12, low=0, high=64, unit="nodes", help="maximum size of the retrieved tree; 0: no retrieval"
    )
    retrieved_depth: int = param(
        8, low=1, high=32, unit="tokens", help="length of the continuation copied from each match"
    )
    top_k: int = param(
        8,
        low=1,
        high=64,
        unit="tokens",
        help="keep a match only if its next token is among this many likeliest of the draft model",
    )
    max_suffix: int = param(6, low=1, high=8, unit="tokens", help="longest suffix of the text to search for")
    min_suffix: int = param(2, low=1, high=8, unit="tokens", help="shortest suffix of the text to search for")
    datastore: str = param("", file=True, most=LARGEST, help=HELP)

    @property
    def branches(self) -> bool:
        return self.nodes + self.retrieved_nodes > 1

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.min_suffix > self.max_suffix:
            return f"rasd.min_suffix = {self.min_suffix}: must not be above rasd.max_suffix, which is {self.max_suffix}."
        return None

    def begin(self, ctx: Context) -> None:
        self._store = load_datastore(self.datastore, ctx.encode, ctx.target.decoder.vocab)
        self._index = SuffixIndex(self.max_suffix)

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        own, law, kept = self._model_tree(ctx)
        tree, notes = self._search_tree(ctx, law)
        tokens, parents, places = merge_trees([own, tree])
        by = [set(at) for at in places]
        names = {(True, False): "model", (False, True): "retrieval", (True, True): "both"}
        origin = [names[node in by[0], node in by[1]] for node in range(len(tokens))]
        source = f"{ctx.lanes['draft'].decoder.spec.name} and what was found"
        return Draft(tokens, parents, source=source, notes={"origin": origin, **notes}, logits=kept)

    def _model_tree(self, ctx: Context) -> tuple[tuple[list[int], list[int]], Tensor, dict[int, Tensor]]:
        """The draft model's tree (tokens, parents), its distribution [V] after the root, and its `Draft.logits`."""
        tree = ModelTree(ctx)
        beam = BeamPool(self.width)
        deepest = min(self.depth, ctx.room)
        rows = tree.read_root()
        at = {ROOT: ROOT}
        laws = []
        for level in range(1, deepest + 1):
            read = {node: i for i, node in enumerate(beam.open)}
            laws.append(tree.estimates([at[node] for node in read], rows))  # [R, V]
            beam.grow(laws[-1])
            if level == deepest or beam.is_settled(self.nodes):
                break
            for node in beam.open:
                parent = beam.parents[node]
                at[node] = tree.add_chosen(at[parent], beam.tokens[node], rows[read[parent]])
            rows = tree.read([at[node] for node in beam.open])
        tree.close()
        keep = sorted(beam.ranking()[: self.nodes])
        place = {ROOT: ROOT, **{node: i for i, node in enumerate(keep)}}
        kept = {place[x]: tree.logits[node] for x, node in at.items() if x in place and node in tree.logits}
        return ([beam.tokens[x] for x in keep], [place[beam.parents[x]] for x in keep]), laws[0][0], kept

    def _search_tree(self, ctx: Context, law: Tensor) -> tuple[tuple[list[int], list[int]], dict[str, Any]]:
        """The tree of earlier continuations that begin with a likely token of `law` [V], and the notes."""
        length, text = min(self.retrieved_depth, ctx.room), ctx.tokens
        here, ends = self._find_earlier(text)
        there, low, high = self._store.find_longest(text, self.max_suffix, self.min_suffix)
        rows = np.full((len(ends), length), -1, dtype=np.int64)
        for row, end in zip(rows, ends, strict=True):
            row[: len(text) - end] = text[end : end + length]
        if there:
            places = self._store.order[np.linspace(low, high - 1, min(high - low, HITS)).astype(np.int64)]
            rows = np.concatenate([rows, self._store.windows(places, there, length)])
        likely = law.topk(min(self.top_k, len(law))).indices.cpu().numpy()
        kept = rows[np.isin(rows[:, 0], likely)]
        kept = kept[np.lexsort(kept.T[::-1])] if len(kept) else kept  # equal prefixes become adjacent
        tokens, parents, _ = frequent_prefixes(kept, self.retrieved_nodes)
        pruned = int((rows[:, 0] >= 0).sum()) - len(kept)
        return (tokens, parents), {"suffix": [here, there], "hits": [len(ends), high - low], "pruned": pruned}

    def _find_earlier(self, text: list[int]) -> tuple[int, list[int]]:
        """The length of the longest suffix that occurred earlier in the text (0: none), and where it ended, latest first."""
        self._index.extend(text)
        for n in range(min(self.max_suffix, len(text) - 1), self.min_suffix - 1, -1):
            ends = self._index.ends(text[-n:])
            if len(ends) > 1:
                return n, list(ends[-2 : -2 - HITS : -1])  # the last of them is the suffix itself
        return 0, []
