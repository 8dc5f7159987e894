"""Several: passes of one model over several feeds, each against a cache of its own, run as one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from decodescope.engine.core.probe import Probe

from ..layers.matrix import linear
from ..layers.partial_pass import DepthRule, ExecutedLayers, Skip
from ..layers.rope import rotate_
from ..stores.cache import KVCache
from . import plain
from .attention_block import AttentionBlock
from .decoder import Decoder
from .feed import Feed


@dataclass(frozen=True)
class PassRequest:
    """A pass as `Decoder.forward` takes it."""

    decoder: Decoder
    feed: Feed
    cache: KVCache | None
    probe: Probe | None = None
    skip: Skip | None = None
    depth: DepthRule | None = None
    ran: ExecutedLayers | None = None

    @property
    def rows(self) -> int:
        """Rows that it feeds, those of all its sequences."""
        return self.feed.tokens.numel()

    @property
    def is_whole(self) -> bool:
        """True if it runs every layer for every row, from the tokens or from a layer at which all rows enter. Such passes
        can be run as one. A decoder that adds to a pass is excluded."""
        whole = self.feed.entries is None and self.skip is None and self.depth is None
        return whole and type(self.decoder) is Decoder

    @property
    def model(self) -> Hashable:
        """The same for decoders that share weights, gates and ids, so that one of them can read for the other, from the same
        layer on."""
        of = self.decoder
        return (
            *map(id, (of.layers, of.embed, of.norm, of.unembedding, of.gates, of.rope)),
            of.usable,
            self.feed.enter,
        )

    @property
    def is_plain(self) -> bool:
        """True if it takes the plain way (`plain.py`), one sequence."""
        if self.probe is not None or self.ran is not None or len(self.feed.tokens) > 1:
            return False
        return plain.can_run(self.decoder.spec, self.decoder.gates, self.feed, self.cache)

    def run(self) -> Tensor:
        """Its logits, by a pass of its own."""
        return self.decoder.forward(self.feed, self.cache, self.probe, self.skip, self.depth, self.ran)


def forward_batched(asked: Sequence[PassRequest]) -> list[Tensor]:
    """The logits of passes that are `whole`, of one `model`: each as its own pass would give them, to rounding.

    Their rows are concatenated, [1, R, d_model], for norms, products and activations: every weight is read once for all.
    Visibility is handled by each pass: it rotates, appends and attends against its own cache. So lengths may differ freely
    and nothing is padded. The requests of probes are filled in each. If every pass is plain, the rows of all are rotated
    at once, and each pass does little more than append and attend.
    """
    if all(one.is_plain for one in asked):
        return _logits(_run_plain(asked), asked)
    stack = asked[0].decoder.stack
    layers = range(asked[0].feed.enter, stack.spec.n_layers)
    jobs = [AttentionBlock(one.decoder.stack, one.feed, one.cache, one.probe) for one in asked]
    x = torch.cat([one.decoder.input_states(one.feed).flatten(0, 1) for one in asked])[None]
    for i in layers:
        for one, own in zip(asked, _split_by_pass(x, asked), strict=True):
            if one.probe is not None and i in one.probe.needs.hidden:
                one.probe.hidden[i] = own
        x = stack.ffn(i, _attend(i, x, asked, jobs))
    for one, own in zip(asked, _split_by_pass(x, asked), strict=True):
        if one.probe is not None and stack.spec.n_layers in one.probe.needs.hidden:
            one.probe.hidden[stack.spec.n_layers] = own
        if one.ran is not None:
            one.ran.enter_all(one.feed.length, layers)
    return _logits(x, asked)


def _run_plain(asked: Sequence[PassRequest]) -> Tensor:
    """The states [1, R, d_model] after the last layer, of plain passes."""
    decoder, feeds = asked[0].decoder, [one.feed for one in asked]
    spec, x = decoder.spec, torch.cat([one.decoder.input_states(one.feed) for one in asked], 1)
    cos, sin = decoder.rope.at(
        torch.cat([feed.positions for feed in feeds], 1), max(feed.highest for feed in feeds)
    )
    counts, rotated = [feed.length for feed in feeds], spec.n_heads + spec.n_kv_heads
    stores = [one.cache.layers for one in asked if one.cache is not None]
    masks = [plain.added_mask(spec, feed, own[0], x.dtype) for feed, own in zip(feeds, stores, strict=True)]
    for i, w in enumerate(decoder.layers):
        qkv = w.queries_keys_values(x, spec, i)  # [1, R, H + 2 K, D]
        rotate_(qkv.narrow(2, 0, rotated), cos, sin)
        parts = zip(stores, qkv.split(counts, 1), feeds, masks, strict=True)
        y = torch.cat(
            [
                plain.head_contexts(spec, own[i], part, feed.positions, mask)
                for own, part, feed, mask in parts
            ],
            1,
        )
        x = linear(y, w.out, w.out_bias).add_(x)
        x = linear(w.activations(x, spec), w.down, w.down_bias).add_(x)
    return x


def _split_by_pass(x: Tensor, asked: Sequence[PassRequest]) -> Iterator[Tensor]:
    """The rows x [1, R, ...] by pass: [B, T, ...]."""
    for part, one in zip(x[0].split([one.rows for one in asked]), asked, strict=True):
        yield part.unflatten(0, tuple(one.feed.tokens.shape))


def _attend(i: int, x: Tensor, asked: Sequence[PassRequest], jobs: Sequence[AttentionBlock]) -> Tensor:
    """x + attention block of layer i, x [1, R, d_model]."""
    stack = jobs[0].stack
    w, s = stack.layers[i], stack.spec
    if not s.kv_at(i):
        for job, own in zip(jobs, _split_by_pass(x, asked), strict=True):
            job.store_kv(i, own.new_empty(*own.shape[:2], 0, s.head_dim))
        return stack.add_bias(x, w.out_bias, w.attn_post, i, 0)
    qkv = w.queries_keys_values(x, s, i)
    y = torch.cat(
        [
            job.contexts(i, own).flatten(0, 1)
            for job, own in zip(jobs, _split_by_pass(qkv, asked), strict=True)
        ]
    )[None]
    return stack.add(x, linear(y, w.out, w.out_bias), w.attn_post, i, 0)


def _logits(x: Tensor, asked: Sequence[PassRequest]) -> list[Tensor]:
    """Those that each pass asks for, [B, R, V], of the last states x [1, R, d_model]."""
    feature = asked[0].decoder.apply_norm(x)
    parts = list(_split_by_pass(feature, asked))
    for one, part in zip(asked, parts, strict=True):
        if one.probe is not None and "final" in one.probe.needs.hidden:
            one.probe.hidden["final"] = part
    wanted = [part[:, one.feed.rows] for one, part in zip(asked, parts, strict=True)]
    logits = asked[0].decoder.unembed(torch.cat([part.flatten(0, 1) for part in wanted])[None])[0]
    counts = [part.shape[0] * part.shape[1] for part in wanted]
    return [own.unflatten(0, part.shape[:2]) for own, part in zip(logits.split(counts), wanted, strict=True)]
