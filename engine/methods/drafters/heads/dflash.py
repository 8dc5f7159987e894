"""DFlash: a small net fills a block of masks in one pass, over keys that are made from the target's own states."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import Draft

from ..shared.block_drafter import BlockDrafter
from ..shared.chain_drawing import draw_together


@component
class DFlash(BlockDrafter):
    """The block is the root and K - 1 masks at the next positions. Each layer of the net attends, in both directions, over the
    block and over the text before it. Keys and values of the text are not made from embeddings. They are made from states of
    several layers of the target, fused into one feature a token, which every layer of the net projects with its own matrices.

    One pass gives K - 1 distributions at once, where an autoregressive layer such as EAGLE-3 needs a pass for each token. None
    of them knows which tokens were drawn before it. Under a random sampler every token is drawn from its own distribution,
    which the rule gets; under a greedy sampler it is the likeliest. Lossless. Costs one product per layer and accepted token,
    one pass over K rows, and the unembedding of the places that guess.

    The block is always read whole, as it was trained; `max_draft_tokens` cuts the draft. The net is a diffusion model, of which
    a draft takes one step, as in the authors' code.
    """

    title = "DFlash"
    source = "Chen et al. 2026, arXiv:2602.06036; z-lab/dflash, dflash/model.py; vllm-project/speculators, models/dflash"
    reads: ClassVar[str] = "dflash"

    def draw(self, ctx: Context, outputs: Tensor, count: int) -> Draft:
        logits = self._net.logits(self._net.guessing(outputs)[:count], ctx.target.decoder)
        return draw_together(ctx, logits, self.title)
