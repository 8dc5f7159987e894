"""The operators of a transformer pass and what each costs: FLOPs and bytes, row by row. No torch.

One pass feeds n new positions per sequence on S held ones, T = S + n; P query-key pairs are scored per sequence and
head, B sequences share the weights. Letters: d_model h, d_ff f, query heads H, KV heads G, head width d, vocabulary V,
rows that get logits m; w, a, k bytes per weight, activation, KV element.

    operator               FLOPs                bytes
    linear i -> o          2 i o n B            i o w + (i n a + o n (k if it makes keys or values, else a)) B
    attention, fused       (4 d + 5) H P B      (2 n H d a + 2 T G d k) B;  unfused: + 4 H P a B
    norm, two a layer      7 h n B              2 h n a B
    residual add, two      h n B                3 h n a B
    SwiGLU                 5 f n B              3 f n a B
    head on m rows         2 h V m B            h V w + (h + V) m a B

The accounting begins after the embedding and goes straight from the last layer to the head: embedding gather, RoPE,
final norm, biases, query-key norms, the norms after a block and the soft caps of Gemma, and sampling are left out
(docs/cost.md says what they would add). Sub-layers that did not run contribute nothing. This is the LLM-Viewer table
(Yuan et al., arXiv 2402.16363) with its errors repaired.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from decodescope.engine.core.spec import ModelSpec

SCORES = "attention"  # the operator that reads what is held
# operator -> which of a layer's matrices it reads, as ModelSpec.bits numbers them
MATRIX = {"q_proj": 0, "k_proj": 0, "v_proj": 0, "o_proj": 1, "gate_proj": 2, "up_proj": 2, "down_proj": 3}


@dataclass(frozen=True)
class Op:
    """One operator of one pass, all sequences together. `layer` is None for the head."""

    name: str
    layer: int | None
    flops: int
    weight_bytes: int = 0
    kv_read_bytes: int = 0
    kv_write_bytes: int = 0
    act_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Bytes that must move: weights, keys and values read and written, activations in and out."""
        return self.weight_bytes + self.kv_read_bytes + self.kv_write_bytes + self.act_bytes

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Cost:
    """The sum of operators: FLOPs, bytes by kind, and how many operators were launched. Costs add with +."""

    flops: int = 0
    weight_bytes: int = 0
    kv_read_bytes: int = 0
    kv_write_bytes: int = 0
    act_bytes: int = 0
    launches: int = 0

    @classmethod
    def of(cls, ops: Iterable[Op]) -> Cost:
        """The sum of `ops`; each is one launch."""
        parts = [(o.flops, o.weight_bytes, o.kv_read_bytes, o.kv_write_bytes, o.act_bytes, 1) for o in ops]
        return cls(*map(sum, zip(*parts, strict=True)))  # no ops: Cost()

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    @property
    def bytes(self) -> int:
        """Bytes that must move, all kinds."""
        return self.weight_bytes + self.kv_read_bytes + self.kv_write_bytes + self.act_bytes

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    def record(self) -> dict[str, Any]:
        """As plain data, with the two derived figures."""
        return asdict(self) | {"bytes": self.bytes, "intensity": self.intensity}


class AttentionScores(NamedTuple):
    """The scores of one attention block.

    pairs:     scores per query head;  read: entries that they read, both on average where heads differ
    fused:     the scores do not go through memory
    read_bits: of a number of the entries, if not those of a new one
    again:     entries that another sequence has loaded
    """

    layer: int
    heads: int
    kv_heads: int
    pairs: int | Fraction
    read: int | Fraction
    fused: bool = True
    read_bits: float | None = None
    again: int = 0


class OperatorPrices:
    """Prices of single operators for passes of so many rows: the table in this module's docstring, row by row.

    What does not depend on the held entries is priced once, so `prices_of` returns the same ones again.
    """

    def __init__(
        self,
        spec: ModelSpec,
        n: int,
        batch: int,
        weight_bits: float,
        act_bits: float,
        kv_bits: float,
        dequant: bool,
    ) -> None:
        self.spec = spec
        self.n = n
        self.batch = batch
        self.w = weight_bits
        self.a = act_bits
        self.k = kv_bits
        self.dequant = dequant
        self._around: dict[Any, tuple[list[Op], list[Op]]] = {}  # by sub-layer: before scores, behind
        self._ffn: dict[int, list[Op]] = {}

    def linear(
        self,
        name: str,
        layer: int | None,
        i: int,
        o: int,
        *,
        rows: int | None = None,
        weight_bits: float | None = None,
        into_cache: bool = False,
    ) -> Op:
        """A matrix product i -> o on `rows` rows per sequence (None: all).

        `into_cache`: it makes keys or values. If the model records the bits of this matrix, they override those of the other
        matrices.
        """
        bits = self.w if weight_bits is None else weight_bits
        if layer is not None and name in MATRIX:
            bits = self.spec.bits_at(layer, MATRIX[name], bits)
        elif name == "lm_head":
            bits = self.spec.head_bits(bits)
        rows = (self.n if rows is None else rows) * self.batch
        written = byte_count(o * rows, self.k if into_cache else self.a)
        return Op(
            name,
            layer,
            flops=2 * i * o * (rows + self.dequant),
            weight_bytes=byte_count(i * o, bits),
            kv_write_bytes=written if into_cache else 0,
            act_bytes=byte_count(i * rows, self.a) + (0 if into_cache else written),
        )

    def pointwise(
        self, name: str, layer: int, width: int, flops: int, tensors: int, rows: int | None = None
    ) -> Op:
        """`flops` operations per element of [n, width], n being `rows` if given; `tensors` such arrays are read or written."""
        elements = width * (self.n if rows is None else rows) * self.batch
        return Op(name, layer, flops * elements, act_bytes=byte_count(tensors * elements, self.a))

    def attention(self, scores: AttentionScores, entering: int | None = None, pages: int = 0) -> list[Op]:
        """The attention sub-layer: norm, projections, scores, residual add.

        entering: rows that get keys and values, if more than those that attend;  pages: how many have bounds that are read
        first
        """
        layer = scores.layer
        heads = scores.heads
        kv_heads = scores.kv_heads
        before, behind = self._around_scores(layer, heads, kv_heads, entering)
        chosen = [self.bounds(layer, heads, kv_heads, pages, self._read_bits(scores))] if pages else []
        return [*before, *chosen, self.scores(scores), *behind]

    def scores(self, s: AttentionScores) -> Op:
        """The operator of that sub-layer that depends on the held entries: scores, their softmax, the mean of the values."""
        d = self.spec.head_dim
        all_read = max(s.read * self.batch - s.again, s.read)  # what sequences share is read once
        written = (
            0 if s.fused else 4 * s.heads * s.pairs
        )  # written and read once before the softmax, once after it
        return Op(
            SCORES,
            s.layer,
            flops=int((4 * d + 5) * s.heads * s.pairs * self.batch),
            kv_read_bytes=byte_count(2 * all_read * s.kv_heads * d, self._read_bits(s)),
            act_bytes=byte_count((2 * self.n * s.heads * d + written) * self.batch, self.a),
        )

    def _read_bits(self, scores: AttentionScores) -> float:
        return self.k if scores.read_bits is None else scores.read_bits

    def _around_scores(
        self, layer: int, heads: int, kv_heads: int, entering: int | None
    ) -> tuple[list[Op], list[Op]]:
        """The operators of the sub-layer before its scores, and after them."""
        if (key := (layer, heads, kv_heads, entering)) not in self._around:
            h, d = self.spec.d_model, self.spec.head_dim
            norm, *filling = self.keys_values(layer, kv_heads, entering)
            out = self.linear("o_proj", layer, heads * d, h)
            self._around[key] = (
                [norm, self.linear("q_proj", layer, h, heads * d), *filling],
                [out, self.pointwise("attn_add", layer, h, flops=1, tensors=3)],
            )
        return self._around[key]

    def bounds(self, layer: int, heads: int, kv_heads: int, pages: int, bits: float) -> Op:
        """Two products of each query with the bounds of so many pages: the smallest and the largest keys, which are read."""
        d = self.spec.head_dim
        read = byte_count(2 * pages * kv_heads * d * self.batch, bits)
        return Op("page_bounds", layer, flops=4 * d * heads * pages * self.n * self.batch, kv_read_bytes=read)

    def keys_values(self, layer: int, kv_heads: int, rows: int | None = None) -> list[Op]:
        """The operators that fill a layer's cache: norm, K and V projections, of so many rows (None: all)."""
        h, o = self.spec.d_model, kv_heads * self.spec.head_dim
        norm = self.pointwise("attn_norm", layer, h, flops=7, tensors=2, rows=rows)
        return [
            norm,
            *(self.linear(name, layer, h, o, rows=rows, into_cache=True) for name in ("k_proj", "v_proj")),
        ]

    def gap(self, layer: int, kv_heads: int, filled: bool, copied: bool) -> list[Op]:
        """What a layer costs whose attention does not run.

        Filled: `keys_values`. Copied: read and write the newest entries of the layer below. Else nothing.
        """
        both = byte_count(2 * kv_heads * self.spec.head_dim * self.n * self.batch, self.k)
        if filled:
            return self.keys_values(layer, kv_heads)
        return [Op("kv_copy", layer, flops=0, kv_read_bytes=both, kv_write_bytes=both)] if copied else []

    def exit_map(self, layer: int, rank: int) -> list[Op]:
        """The operators that a trained exit adds to a state in front of `layer`: down to `rank` and up again, and the sum."""
        h = self.spec.d_model
        maps = [self.linear("exit_down", layer, h, rank), self.linear("exit_up", layer, rank, h)]
        return [*maps, self.pointwise("exit_add", layer, h, flops=1, tensors=3)]

    def ffn(self, layer: int) -> list[Op]:
        """The feed-forward sub-layer: norm, three projections, activation, residual add."""
        if layer not in self._ffn:
            h, f = self.spec.d_model, self.spec.ff_at(layer)
            self._ffn[layer] = [
                self.pointwise("ffn_norm", layer, h, flops=7, tensors=2),
                self.linear("gate_proj", layer, h, f),
                self.linear("up_proj", layer, h, f),
                self.pointwise("swiglu", layer, f, flops=5, tensors=3),
                self.linear("down_proj", layer, f, h),
                self.pointwise("ffn_add", layer, h, flops=1, tensors=3),
            ]
        return self._ffn[layer]


prices_of = lru_cache(maxsize=256)(OperatorPrices)


def byte_count(count: int | Fraction, bits: float) -> int:
    """Whole bytes of `count` elements of `bits` bits each."""
    return math.ceil(count * bits / 8)


def grouped_bits(bits: float, group: int, scale_bits: float = 16, zero_bits: float = 16) -> float:
    """Bits per weight when every `group` weights share a scale and a zero point, e.g. 4 bits in groups of 128: 4.25."""
    return bits + (scale_bits + zero_bits) / group
