"""Block Transformer: a decoder over blocks predicts the next block as one vector, and a second decoder writes its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from decodescope.engine.core.component import component
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CHUNK, CachePolicy
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.decoding.shared.entryless_tokens import evict_all, skip_tokens
from decodescope.engine.decoding.shared.token_draw import draw_token
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.block_transformer import BlockDecoder
from decodescope.engine.model.heads.files import missing_reason

KIND = LANE = "block_transformer"


@component
class BlockTransformer(Strategy):
    """Decode a Block Transformer, a model with two decoders.

    Blocks of L tokens are embedded whole. The block decoder, causal over blocks, reads one row per block and gives the context
    embedding of the next block. The token decoder (the target) reads this embedding as its prefix, and only the tokens of its
    own block.

    So every L-th token costs a pass of one row of the block decoder, and each token a pass of one row of the token decoder. The
    token decoder's cache is cleared at the start of a block and never holds more than L entries: the prefix and L - 1 tokens.
    The block decoder's cache grows by one entry per block. No pass of the token decoder reads the prompt.

    The prefix takes the position of the last token before its block. So each row of the token decoder gives the next token, and
    only the block decoder reads a block's last token. If the prompt is not a whole number of blocks, it is padded in front, as
    in the authors' training (`random_pad_first_block`), so that it ends with a block. The authors' models have a prefix of two
    rows (`expansion_ratio: 2`); this one has one row. The mapped embedding is as wide as the row, so nothing is lost.
    """

    title = "Block Transformer"
    source = (
        "Ho et al. 2024, arXiv:2406.02657, section 2; itsnamgyu/block-transformer, model/block_transformer.py, "
        "model/token_decoder/base.py, conf/trainer/block_main_b4_19.yaml"
    )
    uses = frozenset({"sampler"})
    writes = "blocks"

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        # another kind of model is refused elsewhere
        return missing_reason(KIND, spec, "the shipped model lab-blocks") if spec.block_length else None

    def decoders(self, heads: Mapping[str, Any], spec: ModelSpec) -> dict[str, ModelSpec]:
        return {LANE: cast(BlockDecoder, heads[KIND]).spec(spec)} if KIND in heads else {}

    def prefill(self, s: State) -> None:
        """Read the whole blocks of the prompt by the block decoder, except the last, which ends with the root."""
        spec, head = s.target.decoder.spec, cast(BlockDecoder, s.target.decoder.heads[KIND])
        if head.shape["block_length"] != spec.block_length:
            reads = f"heads/{KIND} reads blocks of {head.shape['block_length']} tokens"
            raise EngineFault(
                "bad_input",
                f"{reads} and {spec.name} writes blocks of {spec.block_length}: train both again.",
            )
        lane = Lane(LANE, head.decoder(spec), CachePolicy(), executor=s.target.executor)
        s.lanes[LANE] = lane
        blocks = head.embed_blocks(torch.tensor([self.pad_text(s)], device=s.target.decoder.device))[:, :-1]
        between = s.chunk_callback(LANE)
        for at in range(0, blocks.shape[1], CHUNK):
            between(at, blocks.shape[1])
            self.read_blocks(lane, blocks[:, at : at + CHUNK], "prefill")
        skip_tokens(s.target, s.tokens[:-1])

    def pad_text(self, s: State) -> list[int]:
        """The text, padded in front so that the prompt ends with a block."""
        spec = s.target.decoder.spec
        return [spec.pad_token or 0] * (-s.prompt % spec.block_length) + s.tokens

    def read_blocks(self, lane: Lane, blocks: Tensor, phase: str) -> Tensor:
        """Read and keep embedded blocks [1, N, d]; return the context [d] behind them."""
        count, start = blocks.shape[1], len(lane.tokens)
        feed = Feed.causal_chain([0] * count, start, blocks.device, logits="last")
        feed.embeds, feed.embed_rows = blocks, torch.ones(count, dtype=torch.bool, device=blocks.device)
        context = lane.forward(feed, phase)[0, -1]
        lane.commit(list(range(count)))
        return context

    def step(self, s: State) -> Move:
        clock = s.target.executor
        n = len(s.tokens)
        block = s.target.decoder.spec.block_length
        started = clock.mark()
        feed = Feed.causal_chain(s.tokens[-1:], n - 1, s.target.decoder.device)
        drafted = None
        if (
            n - s.prompt
        ) % block == 0:  # a block has ended with the root; the prefix takes the root's position
            head = cast(BlockDecoder, s.target.decoder.heads[KIND])
            whole = head.embed_blocks(torch.tensor([self.pad_text(s)[-block:]], device=feed.tokens.device))
            context = self.read_blocks(s.lanes[LANE], whole, "blocks")
            evict_all(s.target)
            feed.embeds = context[None, None]
            feed.embed_rows = torch.ones(1, dtype=torch.bool, device=context.device)
            drafted = clock.mark()
        logits = s.target.forward(feed)[0]  # [1, V]
        verified, before = clock.mark(), s.sampler_state
        token, after = draw_token(logits, s.target.best[0], s.sampler, before, s.chance, n)
        _, end = s.cut([token])
        s.target.commit([0])
        s.tokens.append(token)
        s.sampler_state = after
        return plain_move(
            s, [token], end, started, verified, drafted=drafted, logits=logits, sampler_state=before
        )
