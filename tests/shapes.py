"""Decoders of all shapes that checkpoints have, small and random: biases, norms, windows, caps, rotations, pruned heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import toys
from torch import Tensor

from decodescope.engine.core.spec import Rope
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import apply_gates, slice_by_gates
from decodescope.engine.model.layers.gates import Gates

D = toys.SPEC.head_dim


def shaped(seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> Decoder:
    """A toy of that shape, with the biases and norms that its shape names."""
    spec = toys.toy_spec(**changes)
    decoder, draw = toys.decoder(spec, seed, dtype), torch.Generator().manual_seed(seed + 1)

    def random(like: Tensor, around: float = 0.0) -> Tensor:
        return (around + 0.3 * torch.randn(like.shape, generator=draw)).to(dtype)

    for w in decoder.layers:
        if spec.qkv_bias:
            w.qkv_bias = random(w.qkv[:, 0])
        if spec.out_bias:
            w.out_bias = random(w.out[:, 0])
        if spec.mlp_bias:
            w.gate_up_bias, w.down_bias = random(w.gate_up[:, 0]), random(w.down[:, 0])
        if spec.qk_norm:
            w.q_norm, w.k_norm = (random(w.qkv[: spec.head_dim, 0], 1.0) for _ in range(2))
        if spec.post_norms:
            w.attn_post, w.mlp_post = random(w.attn_norm, 1.0), random(w.mlp_norm, 1.0)
    return decoder


def with_gates() -> Decoder:
    draw = torch.Generator().manual_seed(5)
    sizes = (3, 4), (3, 64), (3, 2)
    return apply_gates(shaped(), Gates(*(torch.rand(*size, generator=draw) for size in sizes)))


def without_heads() -> Decoder:
    """Groups of unequal sizes in layers 0 and 1, no attention block in layer 2."""
    open_ = torch.ones(3, 4)
    open_[0, 1] = open_[1, 0] = open_[2] = 0
    return slice_by_gates(shaped(), Gates(open_))


YARN = Rope(50.0, D, "yarn", 4.0, original_positions=64)
# family -> its toy, and whether its decoding steps are plain
FAMILIES: dict[str, tuple[Callable[[], Decoder], bool]] = {
    "llama": (shaped, True),
    "llama, float64": (lambda: shaped(dtype=torch.float64), True),
    "llama, bfloat16": (lambda: shaped(dtype=torch.bfloat16), True),
    "llama, packed": (lambda: shaped().pack_weights(), True),
    "multi-head": (lambda: shaped(n_kv_heads=4), True),
    "multi-query": (lambda: shaped(n_kv_heads=1), True),
    "biases": (lambda: shaped(qkv_bias=True, out_bias=True, mlp_bias=True), True),
    "qwen3": (lambda: shaped(qk_norm=True), True),
    "phi3, partial rotation": (lambda: shaped(rope=Rope(dim=D // 2)), True),
    "yarn": (lambda: shaped(rope=YARN), True),
    "mistral": (lambda: shaped(windows=(7, 7, 7)), False),
    "smollm3": (lambda: shaped(no_rope=frozenset({1})), False),
    "gemma2": (
        lambda: shaped(
            windows=(9, None, 9), attn_cap=3.0, logit_cap=4.0, act="gelu", post_norms=True, embed_scale=5.0
        ),
        False,
    ),
    "gemma3": (
        lambda: shaped(
            windows=(9, 9, None), local_rope=Rope(100.0, D), qk_norm=True, post_norms=True, act="gelu"
        ),
        False,
    ),
    "reads both sides": (lambda: shaped(causal=False), False),
    "gates": (with_gates, False),
    "cut heads": (without_heads, False),
}
