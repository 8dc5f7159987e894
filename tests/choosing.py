"""A depth rule in which each row chooses its sub-layers by token and place, and a written-out reference of the model."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Probe
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.model.forward.attention_block import AttentionBlock
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import NOTHING, Block, Skip
from decodescope.engine.trace.records.exits import Exit


def runs(tokens: Tensor, positions: Tensor, layer: int, block: Block, share: int) -> Tensor:
    """bool, shaped as `tokens`: whether a row runs a sub-layer; a row runs `share` of seven."""
    return (tokens * 5 + positions * 3 + layer * 11 + 4 * (block == "ffn")) % 7 < share


@component
class Choosing(AdaptiveDepth):
    """Each row runs `share` of seven sub-layers."""

    title = "Choosing"
    source = "tests"
    routes: ClassVar[bool] = True
    reads: ClassVar[bool] = True

    share: int = param(5, low=0, high=7, help="of seven sub-layers")
    skipped_kv: str = param("propagate", choices=("propagate", "absent"), help="of rows left out")
    numbers: bool = param(False, help="say which rows by number")

    def plan(self, position: int, feed: Feed) -> Skip:
        self._feed = feed
        return NOTHING

    def rows(self, layer: int, block: Block, x: Tensor, probe: Probe | None) -> Tensor | None:
        chosen = runs(self._feed.tokens[0], self._feed.positions[0], layer, block, self.share)
        return chosen.nonzero()[:, 0] if self.numbers else chosen

    def take_exit(self) -> Exit | None:
        return Exit(self._lane.decoder.spec.n_layers, "choice")

    def attach_lane(self, lane) -> None:
        self._lane = lane


def masked(decoder: Decoder, feed: Feed, share: int, gap: str) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Pass all rows through every product, and mask away what a row did not run.

    Returns the logits [T, V], and by layer the keys and values [2, H_kv, T, D] and the rows that left them.
    """
    s, job = decoder.spec, AttentionBlock(decoder.stack, feed, None, None)
    tokens, positions, T = feed.tokens[0], feed.positions[0], feed.length
    sees = torch.ones(T, T, dtype=torch.bool) if feed.visible is None else feed.visible[0]
    sees = sees.tril() if feed.visible is None and s.causal else sees
    x, pairs, left = decoder.embed[tokens], [], []
    for i, w in enumerate(decoder.layers):
        ran = runs(tokens, positions, i, "attn", share)
        qkv = job.project(i, x[None])[0]
        q, (k, v) = qkv[:, : s.n_heads], qkv[:, s.n_heads :].view(T, 2, s.n_kv_heads, s.head_dim).unbind(1)
        entry = ran if gap == "absent" else torch.ones_like(ran)
        near = sees & entry
        if s.window(i) is not None:
            near = near & (positions[:, None] - positions < s.window(i))
        wide = [z.repeat_interleave(s.group, 1) for z in (k, v)]
        scores = torch.einsum("thd,shd->hts", q, wide[0]) * s.score_scale
        given = scores.masked_fill(~near, -torch.inf).softmax(-1).nan_to_num()
        y = torch.einsum("hts,shd->thd", given, wide[1]).reshape(T, -1) @ w.out.T
        x = torch.where(ran[:, None], x + y, x)
        pairs.append(torch.stack([k, v]).transpose(1, 2))
        left.append(entry)
        x = torch.where(
            runs(tokens, positions, i, "ffn", share)[:, None], decoder.stack.ffn(i, x[None])[0], x
        )
    return decoder.unembed(decoder.apply_norm(x)), pairs, left
