"""DSpark: DFlash's block with a bias by the token before each place, and an estimate of how far the target will follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.heads.drafting.dspark import BlockChain, DSparkNet
from decodescope.engine.model.layers.faults import require_finite

from ..shared.block_drafter import BlockDrafter
from ..shared.chain_drawing import draw_in_turn, draw_together


@component
class DSpark(BlockDrafter):
    """One pass over a block, as in `dflash`; then the tokens are chosen one after the other. A Markov head adds a bias of low
    rank to the logits of each place, made from the token before it. It restores what a block drawn at once lacks: two
    neighbours that fit each other. The bias costs two small products for each token. With rank 0 there is none, and drafts are
    those of `dflash`.

    A confidence head estimates for each place the chance that the target accepts its token, given that it accepted all before.
    The draft ends in front of the first place below `min_confidence`. That decision knows the drafted prefix only, not the
    token that it withholds. So the text keeps the target's distribution: lossless. The authors' scheduler chooses how many
    places of all requests of a server to verify, by the load; one sequence has no load, so the threshold of their evaluation
    is what is here.

    Notes: `confidence` of each drafted token; `withheld`, the confidence of the place that ended the draft.
    """

    title = "DSpark"
    source = (
        "Cheng et al. 2026, arXiv:2607.05147; deepseek-ai/DeepSpec, deepspec/eval/dspark; "
        "vllm-project/speculators, models/dspark"
    )
    reads: ClassVar[str] = "dspark"
    tells: ClassVar[dict[str, Note]] = {
        **BlockDrafter.tells,
        "confidence": Note(
            "node", "confidence", what="chance of acceptance that the net expects, if all before are accepted",
            line="min_confidence",
        ),
        "withheld": Note("series", "withheld", what="confidence of the place in front of which the draft ends"),
    }  # fmt: skip

    min_confidence: float = param(
        0.0,
        low=0.0,
        high=1.0,
        step=0.05,
        help="end the draft in front of the first place whose expected chance of acceptance is below this; 0: never",
    )

    def draw(self, ctx: Context, outputs: Tensor, count: int) -> Draft:
        net = cast(DSparkNet, self._net)
        root, decoder = ctx.tokens[-1], ctx.target.decoder
        if net.markov is None and net.confidence is None:
            return draw_together(ctx, net.logits(net.guessing(outputs)[:count], decoder), self.title)
        chain, withheld = BlockChain(net, outputs, root, decoder), list[float]()

        def next_logits(tokens: Sequence[int]) -> Tensor | None:
            if len(tokens) == count:
                return None
            logits = chain.next_logits(tokens[-1] if tokens else root)
            if self.min_confidence and chain.confidence:
                share = float(chain.confidence[-1].sigmoid())
                withheld.extend([round(share, 4)] * (share < self.min_confidence))
            return None if withheld else logits

        draft = draw_in_turn(ctx, next_logits, self.title)
        if chain.confidence:
            logits = require_finite(torch.stack(chain.confidence), f"the heads {self.reads}, its confidence,")
            shares = [round(x, 4) for x in logits.sigmoid().tolist()]
            draft.notes = {**(draft.notes or {}), "confidence": shares[: len(draft)]}
            if withheld:
                draft.notes["withheld"] = withheld[0]
        return draft
