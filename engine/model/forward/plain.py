"""Plain: the layers of a short pass that asks for nothing, over layers and stores that are all alike.

A step of a small model is mostly launches: of the 330 operators of a pass over eight layers 140 only look at a tensor in
another way, and Python walks between them. So `can_run` checks once, before the pass, whether every layer is an ordinary one.
Then rotation and mask are made once, in the form in which the kernel takes them, and no layer asks what the attention block of
`general.py` asks. The same numbers go through the same operators in the same order, so the answer has the same bits.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.kernels.choice import kernels_for

from ..layers.gates import OPEN, Gates
from ..layers.layer import Layer
from ..layers.matrix import linear
from ..layers.rope import RopeTable, rotate_
from ..stores.cache import KVCache, LayerStore
from .feed import Feed

FEW = 64  # rows of a pass up to which launches matter, and its mask may be written out for every query head


@lru_cache(maxsize=64)
def layers_alike(spec: ModelSpec) -> bool:
    """True if all layers of a model are alike: whole, rotated in one way, without windows, caps and norms after blocks."""
    unlike = (
        any(spec.windows) or spec.no_rope or spec.local_rope or spec.groups or spec.widths or spec.post_norms
    )
    return spec.causal and spec.attn_cap is None and not unlike


def can_run(spec: ModelSpec, gates: Gates, feed: Feed, cache: KVCache | None) -> bool:
    """True if a pass over `feed` without a probe and without a rule can take this way."""
    if (
        cache is None
        or feed.length > FEW
        or feed.enter
        or feed.shift
        or feed.slots
        or cache.outside
        or gates is not OPEN
    ):
        return False
    if any(x is not None for x in (feed.states, feed.embeds, feed.band, feed.sinks, feed.board, feed.seen)):
        return False
    n, m = cache.layers[0].n, cache.layers[0].m
    if not layers_alike(spec) or (n == 0 and feed.length > 1):
        return False
    return all(x.n == n and x.m == m and x.heads is None and type(x) is LayerStore for x in cache.layers)


def run(
    spec: ModelSpec,
    layers: list[Layer],
    rope: RopeTable,
    feed: Feed,
    cache: KVCache | None,
    x: Tensor,
) -> Tensor:
    """The states [B, T, d_model] after the last layer, of those that enter the first; each layer has T pending rows more."""
    assert cache is not None, "it fits"
    kernels = kernels_for(x)
    if kernels is not None and (program := kernels.pass_program(spec, layers)) is not None:
        cos, sin = rope.at(feed.positions, feed.highest)
        seen = _visible_mask(feed, cache.layers[0])
        return program.run(x, cache.layers, feed.positions, cos, sin, seen)
    rotated, positions = spec.n_heads + spec.n_kv_heads, feed.positions
    cos, sin = rope.at(positions, feed.highest)
    mask = added_mask(spec, feed, cache.layers[0], x.dtype)
    for i, (w, store) in enumerate(zip(layers, cache.layers, strict=True)):
        qkv = w.queries_keys_values(x, spec, i)  # [B, T, H + 2 K, D]
        rotate_(qkv.narrow(2, 0, rotated), cos, sin)
        y = head_contexts(spec, store, qkv, positions, mask)
        x = linear(y, w.out, w.out_bias).add_(x)
        x = linear(w.activations(x, spec), w.down, w.down_bias).add_(x)
    return x


def head_contexts(
    spec: ModelSpec, store: LayerStore, qkv: Tensor, positions: Tensor, mask: Tensor | None
) -> Tensor:
    """The head outputs [B, T, H * D] of queries, keys and values [B, T, H + 2 K, D], rotated. Keys and values are appended to
    `store`. mask: the result of `added_mask`."""
    B, T = qkv.shape[:2]
    K = spec.n_kv_heads
    D = spec.head_dim
    g = spec.group
    H = g * K
    store.append(qkv.narrow(2, H, 2 * K).view(B, T, 2, K, D).permute(2, 0, 3, 1, 4), positions)
    if (kernels := kernels_for(qkv)) is not None:
        q = qkv.narrow(2, 0, H).view(B, T, K, g, D).permute(0, 2, 3, 1, 4)
        k, v = store.kv.narrow(3, 0, store.n + store.m).unbind(0)
        y = kernels.attend(q, k, v, "causal" if mask is None else mask, spec.score_scale)
        return y.permute(0, 3, 1, 2, 4).reshape(B, T, H * D)
    # the query heads of a group become further rows of one head: no key or value is repeated
    q = qkv.narrow(2, 0, H)
    q = q.view(B, K, g, D) if T == 1 else q.view(B, T, K, g, D).permute(0, 2, 3, 1, 4).reshape(B, K, g * T, D)
    k, v = store.kv.narrow(3, 0, store.n + store.m).unbind(0)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=spec.score_scale)  # [B, K, g * T, D]
    y = y if T == 1 else y.view(B, K, g, T, D).permute(0, 3, 1, 2, 4)
    return y.reshape(B, T, H * D)


def added_mask(spec: ModelSpec, feed: Feed, store: LayerStore, dtype: torch.dtype) -> Tensor | None:
    """The term added to the scores, float [B or 1, 1, g * T, n + m + T]: 0, or -inf if a row may not see an entry; None:
    all is seen."""
    if kernels_for(store.kv) is not None:
        seen = _visible_mask(feed, store)
        return None if seen is None else seen[:, None]
    T = feed.length
    seen = feed.visible
    before = store.m
    if seen is None:
        if T == 1:
            return None
        seen = torch.ones(1, T, before + T, dtype=torch.bool, device=feed.tokens.device).tril(before)
    away = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)
    return F.pad(away, (store.n, 0))[:, None].repeat(1, 1, spec.group, 1)


def _visible_mask(feed: Feed, store: LayerStore) -> Tensor | None:
    """bool [B or 1, T, n + m + T]: what each row may see; None: everything before it, and itself."""
    return None if feed.visible is None else F.pad(feed.visible, (store.n, 0), value=True)
