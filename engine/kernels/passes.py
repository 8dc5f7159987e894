"""Passes: all layers of a short pass as one program, so that Python is asked once a pass.

Numbers are rounded to the model's type where `tensors.py` rounds them, so both ways write the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import Any, Protocol
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from . import attention, pointwise, products
from .choice import compile_packed, pass_threads
from .formats import PackedRows
from .tensors import KINDS, TASKS, address_of, byte_strides, float_bits, packed_fields, scale_fields
from .threads import STAGE, run_program

_WIDEST = len(attention.FIELDS)  # int64 of a stage's arguments, at most
_NORM, _QKV, _ENTER, _ATTEND, _OUT, _MLP_NORM, _GATE_UP, _GATE, _DOWN = range(9)  # the stages of a layer
_PRODUCTS = [_QKV, _OUT, _GATE_UP, _DOWN]
# places in the arguments of kernels
_X = 0
_NORM_OUT = 4
_GATE_OUT = 3
_PRODUCT_X = 4
_PRODUCT_ROWS = 6
_PRODUCT_OUT = 8
_PRODUCT_MORE = 12
_PRODUCT_CHUNK = 13
_PRODUCT_SCALES = 14
_PRODUCT_OUTPUTS = 3
_KEYS, _VALUES = 10, 11  # of `enter_cache`
_STRIDES = 12  # the first of three of `enter_cache`
_K, _V = attention.FIELDS.index("k"), attention.FIELDS.index("v")
_K_STRIDES, _V_STRIDES = _K + 2, _V + 1  # three each


class LayerWeights(Protocol):
    """A layer of a decoder: `Layer` in `model/layers`."""

    attn_norm: Tensor
    qkv: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    out_bias: Tensor | None
    gate_up_bias: Tensor | None
    down_bias: Tensor | None
    attn_post: Tensor | None
    mlp_post: Tensor | None
    programs: Any


class Entries(Protocol):
    """The cache of one layer: `LayerStore` in `model/stores`."""

    kv: Tensor
    n: int
    m: int

    def reserve(self, positions: Tensor) -> None:
        """Make room for pending rows at those positions, which the caller writes."""


class PassProgram:
    """The layers of a decoder, all alike, as a program: made once, filled in for each pass."""

    def __init__(self, spec: ModelSpec, layers: Sequence[LayerWeights]):
        first = layers[0]
        self.spec = spec
        self.dtype = first.qkv.dtype
        self.kind = KINDS[first.qkv.dtype]
        self.size = first.qkv.element_size()
        self.qkv_width, self.d_ff = first.qkv.shape[0], first.down.shape[1]
        functions = (
            *(
                pointwise.rms_norm,
                products.product,
                pointwise.enter_cache,
                attention.attention,
                products.product,
            ),
            *(pointwise.rms_norm, products.product, pointwise.gate, products.product),
        )
        self.arguments = np.zeros((len(layers), len(functions), _WIDEST), np.int64)
        self.stages = np.zeros((len(layers), len(functions), STAGE), np.int64)
        self.stages[:, :, 0] = np.array([function.address for function in functions])
        begins = 8 * _WIDEST * np.arange(self.stages[:, :, 0].size)
        self.stages[:, :, 1] = self.arguments.ctypes.data + begins.reshape(len(layers), -1)
        self.scratch = pointwise.norm_scratch_bytes(spec.d_model)
        for i, w in enumerate(layers):
            self._fill_layer(i, w)
        self._rows = 0  # of the largest pass so far
        self._wide = self._own = torch.empty(0, device="cpu")
        self._layers = [ref(w) for w in layers]  # whose memory the addresses are

    def is_of(self, layers: Sequence[LayerWeights]) -> bool:
        """Whether it was made of these very layers, as many as it has."""
        return all(own() is w for own, w in zip(self._layers, layers, strict=True))

    def _fill_layer(self, i: int, w: LayerWeights) -> None:
        """What stays the same in every pass."""
        d = self.spec.d_model
        size = self.size
        kind = self.kind
        eps = float_bits(self.spec.norm_eps)
        for stage, weight in ((_NORM, w.attn_norm), (_MLP_NORM, w.mlp_norm)):
            self._enter(i, stage, (0, kind, d * size, weight.data_ptr(), 0, 0, 4 * d, d, eps))
        for stage, matrix, bias in (
            (_QKV, w.qkv, w.qkv_bias),
            (_OUT, w.out, w.out_bias),
            (_GATE_UP, w.gate_up, w.gate_up_bias),
            (_DOWN, w.down, w.down_bias),
        ):
            n, k = matrix.shape
            packed = packed_rows_of(matrix)
            if packed is None:
                weights = (matrix.data_ptr(), kind, matrix.stride(0) * size, n)
            else:
                weights = packed_fields(packed)
                self.stages[i, stage, 0] = compile_packed().packed_product.address
                self.scratch = max(self.scratch, compile_packed().scratch_bytes(k))
                self.arguments[i, stage, _PRODUCT_SCALES : _PRODUCT_SCALES + 5] = scale_fields(packed)
            self._enter(i, stage, (*weights, 0, 4 * k, 0, k, 0, kind, n * size, address_of(bias), 0))
        function = pointwise.SILU if self.spec.act == "silu" else pointwise.GELU
        self._enter(i, _GATE, (0, kind, 2 * self.d_ff * size, 0, 0, 4 * self.d_ff, self.d_ff, function))

    def _enter(self, layer: int | slice, stage: int, values: Sequence[int]) -> None:
        self.arguments[layer, stage, : len(values)] = values

    def run(
        self,
        x: Tensor,
        stores: Sequence[Entries],
        positions: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
    ) -> Tensor:
        """The states [B, T, d_model] behind the last layer, of x in that shape, which is written over; stores have T more rows.

        positions: int64 [B, T];  cos, sin: [B or 1, T, 1, dim];  mask: bool [B or 1, T, n + m], what each row sees; None: what
        stands before it, and itself
        """
        B, T, d = x.shape
        rows, kv_heads = B * T, self.spec.n_kv_heads
        x = x.contiguous()
        turns = cos.shape[-1]
        table = [part.expand(B, T, 1, turns).reshape(rows, turns).contiguous() for part in (cos, sin)]
        wide, own = self._work_memory(
            rows, max(d, self.qkv_width - 2 * kv_heads * self.spec.head_dim, self.d_ff)
        )
        qkv, gate_up = own.data_ptr(), own.data_ptr() + rows * self.qkv_width * self.size
        a = self.arguments
        a[:, [_NORM, _MLP_NORM], _X] = x.data_ptr()
        a[:, [_NORM, _MLP_NORM], _NORM_OUT] = wide.data_ptr()
        a[:, _GATE, _GATE_OUT] = wide.data_ptr()
        a[:, _PRODUCTS, _PRODUCT_X] = wide.data_ptr()
        a[:, _PRODUCTS, _PRODUCT_ROWS] = rows
        a[:, _QKV, _PRODUCT_OUT] = qkv
        a[:, _GATE_UP, _PRODUCT_OUT] = gate_up
        a[:, _GATE, _X] = gate_up
        for place in (_PRODUCT_OUT, _PRODUCT_MORE):
            a[:, [_OUT, _DOWN], place] = x.data_ptr()
        entries = stores[0].n + stores[0].m
        for store in stores:
            store.reserve(positions)
        tiles = self._enter_attention(qkv, wide, entries + T, (B, T), mask)
        self._enter_cache(qkv, stores, entries, table, T)
        threads = pass_threads()
        for stage in _PRODUCTS:
            outputs = int(a[0, stage, _PRODUCT_OUTPUTS])
            chunk = products.outputs_of_task(outputs, threads)
            a[:, stage, _PRODUCT_CHUNK] = chunk
            self.stages[:, stage, 2] = -(-outputs // chunk)
        self.stages[:, :, 3:] = 0
        self.stages[:, [_NORM, _ENTER, _MLP_NORM], 2] = rows
        self.stages[:, _ATTEND, 2] = tiles
        self.stages[:, _GATE, 2] = rows * -(-self.d_ff // pointwise.GATED)
        scratch = max(self.scratch, attention.scratch_bytes(entries + T, self.spec.head_dim))
        run_program(self.stages.reshape(-1, STAGE), threads, scratch)
        return x

    def _work_memory(self, rows: int, width: int) -> tuple[Tensor, Tensor]:
        """float32 [rows * width], what a product reads, and queries, keys, values and gates in the model's type. It is kept for
        the next pass: memory that is new is slow."""
        if rows > self._rows:
            self._rows = -(-rows // 16) * 16
            self._wide = torch.empty(self._rows * width, device="cpu")
            self._own = torch.empty(
                self._rows * (self.qkv_width + 2 * self.d_ff), dtype=self.dtype, device="cpu"
            )
        return self._wide, self._own

    def _enter_cache(
        self, qkv: int, stores: Sequence[Entries], entries: int, table: Sequence[Tensor], T: int
    ) -> None:
        """The arguments by which the rows of a pass enter the caches behind `entries` others, and attention reads them."""
        spec, size = self.spec, self.size
        turns = table[0].shape[1]
        # each store has its own: one that had more rows pending is larger
        strides = np.array([store.kv.stride() for store in stores], np.int64) * size
        heads = (self.qkv_width * size, spec.n_heads, spec.n_kv_heads, spec.head_dim)
        turning = (table[0].data_ptr(), table[1].data_ptr(), turns * size, turns)
        self._enter(slice(None), _ENTER, (qkv, self.kind, *heads, *turning, 0, 0, 0, 0, 0, T))
        keys = np.array([store.kv.data_ptr() for store in stores], np.int64)
        values = keys + strides[:, 0]
        a = self.arguments
        a[:, _ENTER, _KEYS] = keys + entries * strides[:, 3]
        a[:, _ENTER, _VALUES] = values + entries * strides[:, 3]
        a[:, _ATTEND, _K], a[:, _ATTEND, _V] = keys, values
        for stage, first in ((_ENTER, _STRIDES), (_ATTEND, _K_STRIDES), (_ATTEND, _V_STRIDES)):
            a[:, stage, first : first + 3] = strides[:, 1:4]

    def _enter_attention(
        self,
        qkv: int,
        wide: Tensor,
        entries: int,
        shape: tuple[int, int],
        mask: Tensor | None,
    ) -> int:
        """The arguments of attention, but for those of keys and values; the number of its tasks."""
        spec = self.spec
        size = self.size
        kind = self.kind
        (B, T) = shape
        K = spec.n_kv_heads
        D = spec.head_dim
        g = spec.group
        row, out = self.qkv_width * size, 4 * K * g * D
        seen = (
            (0,) * 6
            if mask is None
            else (mask.data_ptr(), byte_strides(mask, 0)[0], 0, 0, *mask.stride()[1:])
        )
        tile = max(1, min(attention.TILE, B * K * g * T // (TASKS * pass_threads())))
        self._enter(
            slice(None),
            _ATTEND,
            (
                *(qkv, kind, T * row, g * D * size, D * size, row, 0, kind, *(0,) * 7, *seen),
                *(
                    K,
                    g,
                    T,
                    entries,
                    D,
                    tile,
                    int(mask is None),
                    float_bits(spec.score_scale),
                    float_bits(0.0),
                ),
                *(wide.data_ptr(), 0, kind, T * out, 4 * g * D, 4 * D, out, 0, 0, 0),
            ),
        )
        return B * K * -(-g * T // tile)


def pass_program(spec: ModelSpec, layers: Sequence[LayerWeights]) -> PassProgram | None:
    """The layers of a model as one program, made once for each thread; None where they ask for what it has not."""
    if layers[0].programs is None:
        layers[0].programs = {}
    programs = layers[0].programs
    key = get_ident(), len(layers)
    program: PassProgram | None = programs.get(key)
    if program is None or not program.is_of(layers):
        if not all(map(_fits, layers)):
            return None
        program = programs[key] = PassProgram(spec, layers)
    return program


def packed_rows_of(matrix: Tensor) -> PackedRows | None:
    """The rows of a matrix of few bits (`Matrix` in `model/layers`) that the kernels can read; None for any other."""
    return None if type(matrix) is Tensor else getattr(matrix, "packed_rows", lambda: None)()


def _is_readable(matrix: Tensor) -> bool:
    """True if a product of a program can read a matrix."""
    if matrix.dtype not in KINDS:
        return False
    if type(matrix) is Tensor:
        return not matrix.is_mkldnn and matrix.stride(1) == 1
    return packed_rows_of(matrix) is not None


def _fits(w: LayerWeights) -> bool:
    """Whether a layer can be part of a program: its matrices are rows of numbers, its heads and blocks are not normed."""
    return (
        all(map(_is_readable, (w.qkv, w.out, w.gate_up, w.down)))
        and w.q_norm is None
        and w.attn_post is None
        and w.mlp_post is None
    )
