"""A brute-force decoder, written from the papers: no cache, no mask, no batched product."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.rope import RopeTable, rotate_


def brute(
    decoder: Decoder,
    tokens: list[int],
    positions: list[int],
    sees: Callable[[int, int, int, int], bool],
    place: Callable[[int, int], int] | None = None,
) -> Tensor:
    """Return the logits [T, V] of `tokens`, computed one query and one head at a time.

    sees(layer, head, query, key) says which rows are visible. Keys are rotated when they are read: to their position, or to
    place(query, key) if given (and the query to place(query, query)).
    """
    spec, D = decoder.spec, decoder.spec.head_dim
    table = RopeTable(spec.rope, 600, decoder.dtype, "cpu")
    place = place or (lambda query, row: positions[row])

    def turned(x: Tensor, at: int) -> Tensor:
        x = x.clone()[None]
        cos, sin = table.at(torch.tensor([at]), at)
        rotate_(x, cos[0], sin[0])
        return x[0]

    x = decoder.embed[tokens]
    for i, w in enumerate(decoder.layers):
        y = F.rms_norm(x, (spec.d_model,), w.attn_norm, spec.norm_eps)
        qkv = F.linear(y, w.qkv).view(len(tokens), -1, D)
        out = torch.zeros(len(tokens), spec.n_heads, D, dtype=x.dtype)
        for head in range(spec.n_heads):
            kv = head // spec.group
            for t in range(len(tokens)):
                keys = [s for s in range(len(tokens)) if sees(i, kv, t, s)]
                q = turned(qkv[t, head], place(t, t))
                k = torch.stack([turned(qkv[s, spec.n_heads + kv], place(t, s)) for s in keys])
                v = qkv[keys, spec.n_heads + spec.n_kv_heads + kv]
                out[t, head] = (k @ q * D**-0.5).softmax(0) @ v
        x = x + F.linear(out.flatten(1), w.out)
        y = F.rms_norm(x, (spec.d_model,), w.mlp_norm, spec.norm_eps)
        gate, up = F.linear(y, w.gate_up).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, w.down)
    return F.linear(F.rms_norm(x, (spec.d_model,), decoder.norm, spec.norm_eps), decoder.head)
