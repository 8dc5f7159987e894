"""Slicing: a model without the parts with closed gates."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from ..layers.gates import Gates
from ..layers.layer import Layer
from ..layers.matrix import unpack
from ..layers.norm import single_weight
from .decoder import Decoder


def apply_gates(decoder: Decoder, gates: Gates) -> Decoder:
    """The same model, with shared weights, under `gates`, on whatever device they are. It computes all that it computed
    before; use `slice_by_gates` to save work."""
    gates.check(decoder.spec)
    model = copy.copy(decoder)
    model.gates = gates.to_device(decoder.device)
    model.forget_costs()
    return model


def slice_by_gates(decoder: Decoder, gates: Gates) -> Decoder:
    """A model without the parts that have gate 0: their rows and columns are in no matrix, and a KV head that no query head
    reads is neither projected nor cached. The other gates must be 1. Matrices come out as rows; `packed` lays them out again.

    KV heads are ordered by the size of their group, the largest first, and query heads with them, so heads of one size are
    adjacent; `kept_heads` lists the remaining ones.
    """
    gates.check(decoder.spec)
    for name in ("head", "ffn", "sub"):
        table = getattr(gates, name)
        if table is not None and not ((table == 0) | (table == 1)).all():
            raise ValueError(f"Gates.{name} has numbers between 0 and 1: only what is closed can be cut out.")
    cuts = [_LayerCut(decoder.spec, gates, i) for i in range(decoder.spec.n_layers)]
    spec = replace(
        decoder.spec, groups=tuple(c.groups for c in cuts), widths=tuple(len(c.columns) for c in cuts)
    )
    if spec.groups == ((spec.group,) * spec.n_kv_heads,) * spec.n_layers:
        spec = replace(spec, groups=())
    if set(spec.widths) == {spec.d_ff}:
        spec = replace(spec, widths=())
    layers = [cut.layer(w) for cut, w in zip(cuts, decoder.layers, strict=True)]
    head = decoder.embed if decoder.head is decoder.embed else unpack(decoder.head)
    smaller = Decoder(spec, decoder.embed, layers, single_weight(decoder.norm, spec.d_model), head)
    smaller.usable, smaller.heads = decoder.usable, decoder.heads
    return smaller


def kept_heads(spec: ModelSpec, gates: Gates) -> list[list[int]]:
    """By layer, the query heads that `slice_by_gates` leaves, in their order there."""
    return [
        [head for group in _LayerCut(spec, gates, i).heads for head in group] for i in range(spec.n_layers)
    ]


class _LayerCut:
    """The rest of one layer. heads: for each KV head that stays, its query heads;  kv: those KV heads;  columns: int64 [F']"""

    def __init__(self, spec: ModelSpec, gates: Gates, layer: int):
        self.spec, self.groups_before = spec, spec.groups_at(layer)
        runs = [True, True] if gates.sub is None else [bool(x) for x in gates.sub[layer]]
        self.biased = (
            runs  # a block that runs keeps the bias of its last product, whatever is left of the rest
        )
        first, left = 0, list[tuple[int, list[int]]]()
        for k, size in enumerate(self.groups_before):
            group, first = range(first, first + size), first + size
            own = [h for h in group if runs[0] and (gates.head is None or bool(gates.head[layer, h]))]
            left += [(k, own)] if own else []
        left.sort(key=lambda pair: -len(pair[1]))
        self.kv, self.heads = [k for k, _ in left], [own for _, own in left]
        self.groups = tuple(map(len, self.heads))
        self.wide = spec.ff_at(layer)
        columns = torch.ones(self.wide) if gates.ffn is None else gates.ffn[layer, : self.wide]
        self.columns = columns.nonzero()[:, 0].tolist() if runs[1] else []

    def layer(self, w: Layer) -> Layer:
        """That of w."""
        D, d = self.spec.head_dim, self.spec.d_model
        query = _head_rows([h for own in self.heads for h in own], D)
        heads, many = sum(self.groups_before), len(self.groups_before)
        kv = [_head_rows([first + k for k in self.kv], D) for first in (heads, heads + many)]
        rows = torch.tensor([*query, *kv[0], *kv[1]], dtype=torch.int64)
        both = torch.tensor([*self.columns, *(self.wide + x for x in self.columns)], dtype=torch.int64)
        layer = Layer(
            _norm_weight(self.groups, single_weight(w.attn_norm, d)),
            unpack(w.qkv)[rows],
            unpack(w.out)[:, torch.tensor(query, dtype=torch.int64)].contiguous(),
            _norm_weight(self.columns, single_weight(w.mlp_norm, d)),
            unpack(w.gate_up)[both],
            unpack(w.down)[:, torch.tensor(self.columns, dtype=torch.int64)].contiguous(),
        )
        layer.qkv_bias = None if w.qkv_bias is None else w.qkv_bias[rows]
        layer.gate_up_bias = None if w.gate_up_bias is None else w.gate_up_bias[both]
        layer.out_bias = w.out_bias if self.biased[0] else None
        layer.down_bias = w.down_bias if self.biased[1] else None
        layer.q_norm = w.q_norm
        layer.k_norm = w.k_norm
        layer.attn_post = w.attn_post
        layer.mlp_post = w.mlp_post
        return layer


def _head_rows(heads: list[int], width: int) -> list[int]:
    """The rows of some heads."""
    return [row for head in heads for row in range(head * width, (head + 1) * width)]


def _norm_weight(left: object, weight: Tensor) -> Tensor:
    """A norm's weight; empty for a block with nothing left."""
    return weight if left else weight[:0].clone()
