"""Beam search: keep the most likely hypotheses, extend all of them, keep the best again."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.model.stores.tree import PLANS

from .shared.beam_search import BeamSearch, extend_searches, share_prefixes
from .shared.hypotheses import HYPOTHESES


@component
class Beam(Strategy):
    """Extend each of `width` hypotheses by every token, keep the best `width` that go on, and set aside those that end.

    With one stop id, at most `width` of the best 2 * width extensions can end, so enough go on. With more stop ids, more
    extensions are considered. A finished hypothesis is ranked by score / length^alpha. The search ends at the length limit, or
    when `width` have finished and no open hypothesis can beat the worst of them, even if its rest were certain.

    The result approximates the most likely text, so it does not have the target's distribution. The last step emits the text.

    Hypotheses branch off one another, so their entries are a tree. Each entry is held once, and reordering the hypotheses moves
    none (`engine/model/stores/tree.py`). `attention_plan` chooses how a pass reads the tree. "dense" multiplies every query
    with every entry, under a mask, in one product. "node" loads each node once, for the queries of the hypotheses that read it
    (KV-guided grouping). "flatten" concatenates the nodes and cuts them into blocks of `block` entries for that (flattened
    splitting). All three are the attention of a hypothesis over its own text. The authors' kernel reads a node's entries in
    place, all groups at once. Here entries that are not contiguous are copied for the pass, and groups run one after the other.
    With a policy that evicts entries or chooses what is read, or with KV compression, each hypothesis has its own copy of the
    cache.
    """

    title = "Beam search"
    source = (
        "Graves 2012, arXiv:1211.3711; length penalty: Wu et al. 2016, arXiv:1609.08144, section 7; the tree of entries: DeFT, "
        "Yao et al. 2024, arXiv:2404.00242"
    )
    uses = frozenset({"prompt_compression", "policy", "kv_compression"})
    lossless = False
    changes = "the continuation with the best sum is kept"
    details: ClassVar = {"hypotheses": HYPOTHESES}

    width: int = param(
        4,
        low=1,
        high=32,
        unit="hypotheses",
        help="beam width (B): number of hypotheses that the search keeps at each step",
    )
    alpha: float = param(
        1.0,
        low=0.0,
        high=2.0,
        step=0.1,
        help="exponent of the length penalty: score / length^alpha; 0: no penalty",
    )
    attention_plan: str = param(
        "dense",
        choices=PLANS,
        help="how attention reads shared entries: one masked product, by node, or in even blocks",
    )
    block: int = param(
        128,
        low=16,
        high=4096,
        unit="entries",
        help="size of each block of shared entries when the attention plan is flatten",
    )

    def begin(self, s: State) -> None:
        s.scratch = BeamSearch(self.width, self.alpha)
        share_prefixes(s, self.attention_plan, self.block)

    def step(self, s: State) -> Move:
        return extend_searches(s, [s.scratch], "hypotheses")
