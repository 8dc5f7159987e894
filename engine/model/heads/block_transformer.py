"""Block Transformer: an embedder of blocks and a decoder that reads blocks as rows, around the token decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from decodescope.engine.core.spec import ModelSpec, Rope

from ..forward.decoder import Decoder, Layer
from .base import EPS, Head

SIDES = ("attn_norm", "qkv", "out", "mlp_norm", "gate_up", "down")


class BlockDecoder(Head):
    """The embedding of a block of `block_length` tokens is the concatenation of their rows in `table` (the authors' "lookup"
    embedder). A decoder of `layers` layers, causal over blocks, reads it as one row. `prefix` maps the output of its last
    norm to the row before the next block's tokens in the token decoder, the target.

    table float [vocab, d / block_length], prefix float [d, d], norm float [d]; the others are those of `Layer`, by layer.
    Ho et al. 2024, arXiv:2406.02657, section 2; itsnamgyu/block-transformer, model/embedder/lookup.py, token_decoder/base.py.
    """

    kind = "block_transformer"

    def __init__(
        self, d: int, vocab: int, block_length: int, layers: int, n_heads: int, head_dim: int, d_ff: int
    ) -> None:
        super().__init__(
            d=d, vocab=vocab, block_length=block_length, layers=layers, n_heads=n_heads, head_dim=head_dim, d_ff=d_ff
        )  # fmt: skip
        width = n_heads * head_dim
        self.table = nn.Parameter(torch.empty(vocab, d // block_length))
        self.attn_norm = nn.Parameter(torch.ones(layers, d))
        self.mlp_norm = nn.Parameter(torch.ones(layers, d))
        self.qkv = nn.Parameter(torch.empty(layers, 3 * width, d))
        self.out = nn.Parameter(torch.empty(layers, d, width))
        self.gate_up = nn.Parameter(torch.empty(layers, 2 * d_ff, d))
        self.down = nn.Parameter(torch.empty(layers, d, d_ff))
        self.norm, self.prefix = nn.Parameter(torch.ones(d)), nn.Parameter(torch.empty(d, d))

    def embed_blocks(self, tokens: Tensor) -> Tensor:
        """float [B, N, d]: the blocks of tokens int64 [B, N * block_length]."""
        return self.table[tokens].view(len(tokens), -1, self.shape["d"])

    def spec(self, target: ModelSpec) -> ModelSpec:
        """The shape of the block decoder, next to that token decoder. Its head is the prefix, with a "vocabulary" of d and only
        one matrix."""
        s = self.shape
        rope = Rope(target.rope.theta, s["head_dim"])
        return ModelSpec(
            f"{target.name}'s block decoder", s["layers"], s["n_heads"], s["n_heads"], s["head_dim"], s["d"], s["d_ff"],
            vocab=s["d"], max_positions=-(-target.max_positions // s["block_length"]) + 1, rope=rope, norm_eps=EPS, tied=True,
        )  # fmt: skip

    def decoder(self, target: ModelSpec) -> Decoder:
        """The block decoder as a model of its own: it reads embedded blocks (`Feed.embeds`) at the positions of blocks, and its
        "logits" [B, N, d] are the prefixes of the blocks after them."""
        layers = [Layer(*(getattr(self, side)[i] for side in SIDES)) for i in range(self.shape["layers"])]
        none = self.norm.new_zeros(1, self.shape["d"])  # no id is ever looked up
        return Decoder(self.spec(target), none, layers, self.norm, self.prefix).pack_weights()
