"""Diverse beam search: groups of beams choose one after another; each pays a penalty for tokens that earlier groups chose."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.model.stores.tree import PLANS
from decodescope.engine.trace.details.declarations import DetailColumn, Figure, NodeOutcome, Sentence

from .shared.beam_search import BeamSearch, extend_searches, share_prefixes
from .shared.hypotheses import BEST_STAY, FIGURES, HYPOTHESES, LARGEST_STAY, UNNAMED

GROUPS = replace(
    HYPOTHESES,
    columns=[
        *HYPOTHESES.columns,
        DetailColumn("group", "number", "summary"),
        DetailColumn("fine", "number", "summary"),
    ],
    outcomes={
        **HYPOTHESES.outcomes,
        "kept": NodeOutcome("open", row=[Sentence("{score:3} nats, group {group + 1}, fined {fine:g}")]),
    },
    figures=[*FIGURES, Figure("group {group + 1}", "fined, nats", [Sentence("{fine:3}")])],
    card=[
        Sentence(
            f"{BEST_STAY} Each group ranks its own, less a fine for what groups before it chose in the same step."
        )
    ],
    lines=[
        Sentence(LARGEST_STAY),
        Sentence(
            "Each group chooses by itself, and is fined for every token that a group before it chose in the same step."
        ),
    ],
    group="group",
    best_first="score - fine",
    why=[
        Sentence("its best extension had {own:2} nats, the last that was kept {bar:2} nats, fines apart"),
        Sentence("its best extension had {own:2} nats"),
        UNNAMED,
    ],
)


@component
class DiverseBeam(Strategy):
    """Run `width` beams in `groups` groups of width / groups.

    In each step the groups choose one after the other, and each is a separate beam search. An extension by the token v is
    ranked by its score, the sum of log-probabilities, minus penalties. The penalty is `diversity_penalty` for every time that
    an earlier group chose v in this step (Hamming diversity), plus the earlier penalties of its text. So the first group is
    beam search of its width, whatever the others do. One group is beam search, and without a penalty all groups are the same
    search. The text is the best of all groups by score / length^alpha, without penalties.

    One pass reads the hypotheses of all groups, which share their common entries (see `beam`). A group that ends, by the rule
    of beam search, leaves the batch with the next step.

    The penalties of a text add up, as in the authors' code (`beam_logprobs_sum`). Differences from that code: all groups choose
    within one step; theirs lag a step behind each other, which is the same for Hamming diversity. Tokens that end a text count
    as chosen. The list of all groups is ranked without penalties; theirs ranks each group by itself. The penalty of 0.5 is the
    default of their program. width = 6 and 3 groups are ours; its defaults are 2 and 2.
    """

    title = "Diverse beam search"
    source = (
        "Vijayakumar et al. 2018, AAAI, arXiv:1610.02424, section 4; ashwinkalyan/dbs, dbs/beam_utils.lua"
    )
    uses = frozenset({"prompt_compression", "policy", "kv_compression"})
    lossless = False
    changes = "the best of several searches that keep apart is kept"
    details: ClassVar = {"grouped_hypotheses": GROUPS}

    width: int = param(
        6,
        low=1,
        high=32,
        unit="hypotheses",
        help="hypotheses of all groups together (B); must be a multiple of the number of groups",
    )
    groups: int = param(
        3,
        low=1,
        high=32,
        unit="groups",
        help="number of groups (G); in each step they choose one after the other",
    )
    diversity_penalty: float = param(
        0.5,
        low=0.0,
        high=10.0,
        step=0.1,
        unit="nats",
        help="penalty each time an earlier group chose the same token in this step (lambda)",
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

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.width % self.groups:
            return f"diverse_beam.width = {self.width} is not a multiple of groups = {self.groups}: choose one that is."
        return None

    def begin(self, s: State) -> None:
        s.scratch = [BeamSearch(self.width // self.groups, self.alpha) for _ in range(self.groups)]
        share_prefixes(s, self.attention_plan, self.block)

    def step(self, s: State) -> Move:
        return extend_searches(s, s.scratch, "grouped_hypotheses", self.diversity_penalty)
