"""Layer: the weights of one layer of a decoder."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.kernels.choice import kernels_for

from .matrix import Matrix, copy_weight_to, linear, pack, rows_from
from .norm import double_weight, rms_norm, single_weight


@dataclass
class Layer:
    """Weights of one layer. Matrices are [out, in], plain, packed or a `Matrix`; q, k, v and gate, up are stacked so that each
    is one product."""

    attn_norm: Tensor
    qkv: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    qkv_bias: Tensor | None = None
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    out_bias: Tensor | None = None
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    attn_post: Tensor | None = None
    mlp_post: Tensor | None = None
    # rows of qkv that make keys and values, once packed
    _lower: Tensor | None = field(default=None, init=False, repr=False)
    # of a decoder's first layer: all its layers as one program of `engine/kernels`, by thread and number of layers
    programs: ClassVar[Any] = None

    def to(self, **where: torch.dtype | torch.device | str) -> Layer:
        """The same layer with every tensor moved or cast, its packed matrices as plain rows."""
        d = self.qkv.shape[1]
        tensors = {f.name: x for f in fields(self) if f.init and (x := getattr(self, f.name)) is not None}
        norms = {name: single_weight(tensors[name], d) for name in ("attn_norm", "mlp_norm")}
        return Layer(**{name: copy_weight_to(x, **where) for name, x in (tensors | norms).items()})

    def pack_weights(self) -> Layer:
        """The same layer with its weights laid out for this processor (see matrix.py and norm.py)."""
        d = self.qkv.shape[1]
        tensors = {name: pack(getattr(self, name)) for name in ("qkv", "out", "gate_up", "down")}
        tensors |= {
            name: double_weight(single_weight(getattr(self, name), d)) for name in ("attn_norm", "mlp_norm")
        }
        return replace(self, **tensors)

    def queries_keys_values(self, x: Tensor, s: ModelSpec, i: int) -> Tensor:
        """Queries, keys and values of x [B, T, d_model] before rotation: [B, T, H + 2 H_kv, D]; i: the layer's number."""
        heads, kv = s.heads_at(i), s.kv_at(i)
        y = rms_norm(x, self.attn_norm, s.norm_eps)
        qkv = linear(y, self.qkv, self.qkv_bias).view(x.shape[0], x.shape[1], heads + 2 * kv, s.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            raw = qkv
            if torch.is_grad_enabled():  # a gradient needs what the norms read, which else is written over
                qkv = qkv.clone()
            qkv[:, :, :heads] = rms_norm(raw[:, :, :heads], self.q_norm, s.norm_eps)
            keys = slice(heads, heads + kv)
            qkv[:, :, keys] = rms_norm(raw[:, :, keys], self.k_norm, s.norm_eps)
        return qkv

    def activations(self, x: Tensor, s: ModelSpec) -> Tensor:
        """The activations of the feed-forward block for x [B, T, d_model] before its last product: [B, T, d_ff]."""
        y = rms_norm(x, self.mlp_norm, s.norm_eps)
        both = linear(y, self.gate_up, self.gate_up_bias)
        if (kernels := kernels_for(both)) is not None:
            return kernels.apply_gate(both, s.act)
        gate, up = both.chunk(2, -1)
        gate = F.silu(gate) if s.act == "silu" else F.gelu(gate, approximate="tanh")
        return gate.mul_(up)

    def keys_values(self, x: Tensor, s: ModelSpec, i: int) -> Tensor:
        """The keys and values among those, [B, T, 2 H_kv, D], by a product that makes no query."""
        first, many = s.heads_at(i) * s.head_dim, s.kv_at(i)
        if not many:
            return x.new_empty(*x.shape[:2], 0, s.head_dim)
        kept = isinstance(self.qkv, Matrix) or self.qkv.is_mkldnn
        weight = self._lower if kept else self.qkv[first:]
        if weight is None:
            weight = self._lower = rows_from(self.qkv, first)
        bias = None if self.qkv_bias is None else self.qkv_bias[first:]
        kv = linear(rms_norm(x, self.attn_norm, s.norm_eps), weight, bias).view(
            *x.shape[:2], 2 * many, s.head_dim
        )
        if self.k_norm is None:
            return kv
        keys = rms_norm(kv[:, :, :many], self.k_norm, s.norm_eps)
        return torch.cat([keys, kv[:, :, many:]], 2)
