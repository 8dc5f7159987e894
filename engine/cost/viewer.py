"""LLM-Viewer's accounting as published, operator by operator, and where it differs from ours. No torch.

Source: Yuan et al., LLM Inference Unveiled, arXiv 2402.16363; hahnyuan/LLM-Viewer, model_analyzer.py and configs/Llama.py,
revision of July 2024. The table keeps their errors, so that their figures can be distinguished from ours. `compare_costs` sets
both side by side and says in words why they differ. Nothing else is priced by it.

Letters as in `operators.py`; s: all positions of a sequence. Decoding adds the last position, a prefill adds all.

    operator                   FLOPs           bytes
    linear i -> o              2 i o n B       as ours
    scores; sums of values     2 d H n s B     keys or values read, d n a B of H heads (scores of a prefill: of G), H n s a B
    softmax                    5 H n s B       2 H n s a B
    the three fused            their sum       2 ceil(n / b) s d H k B, and (d n + 2 s n) H a B;  b: rows of a block, at most d
    norm, two a layer          7 h n B         2 h n a B
    residual add, two a layer  h n B           2 h n a B
    activation                 2 h n B         3 h n a B
    head, on one row           h V B           h V w + (h + V) a
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from decodescope.engine.core.spec import ModelSpec

from .cost import PassShape, pass_ops
from .operators import Cost, Op, byte_count
from .roofline import Estimate, HardwareProfile

Stage = Literal["decode", "prefill"]
INTEGER = 8  # bits: the integer peak is taken where nothing has more


@dataclass(frozen=True)
class BitWidths:
    """Bits of a weight, of an activation, and of a number of the cache."""

    weights: float = 16
    acts: float = 16
    cache: float = 16

    def dtype(self, machine: HardwareProfile) -> str | None:
        """The type whose peak counts: integers where all have 8 bits or fewer and the machine lists a peak for them."""
        known = isinstance(machine.peak_flops, dict) and "int8" in machine.peak_flops
        return "int8" if known and max(self.weights, self.acts, self.cache) <= INTEGER else None


def viewer_ops(
    spec: ModelSpec,
    stage: Stage,
    length: int,
    *,
    batch: int = 1,
    bits: BitWidths | None = None,
    fused: bool = False,
) -> list[Op]:
    """Every operator of one pass by their table, layer by layer; `length`: s. Raises ValueError for sizes below one."""
    if length < 1 or batch < 1:
        raise ValueError(
            f"A pass has at least one position of one sequence; length = {length}, batch = {batch}."
        )
    table = _ViewerTable(spec, length, length if stage == "prefill" else 1, batch, bits or BitWidths(), fused)
    return [op for layer in range(spec.n_layers) for op in table.layer(layer)] + [table.head()]


@dataclass(frozen=True)
class _ViewerTable:
    """s: positions of a sequence;  n: of these, that are fed"""

    spec: ModelSpec
    s: int
    n: int
    batch: int
    bits: BitWidths
    fused: bool

    def layer(self, i: int) -> list[Op]:
        h, f = self.spec.d_model, self.spec.d_ff
        q, kv = self.spec.n_heads * self.spec.head_dim, self.spec.n_kv_heads * self.spec.head_dim
        before, after = (("q_proj", h, q), ("k_proj", h, kv), ("v_proj", h, kv)), (("o_proj", q, h),)
        ffn = ("gate_proj", h, f), ("up_proj", h, f), ("down_proj", f, h)
        return [
            self.pointwise("attn_norm", i, flops=7, tensors=2),
            *(self.linear(name, i, a, b) for name, a, b in before),
            *(self.fused_attention(i) if self.fused else self.attention(i)),
            *(self.linear(name, i, a, b) for name, a, b in after),
            self.pointwise("attn_add", i, flops=1, tensors=2),
            self.pointwise("ffn_norm", i, flops=7, tensors=2),
            *(self.linear(name, i, a, b) for name, a, b in ffn),
            self.pointwise("mlp_act", i, flops=2, tensors=3),
            self.pointwise("ffn_add", i, flops=1, tensors=2),
        ]

    def linear(self, name: str, layer: int, i: int, o: int) -> Op:
        rows, cached = self.n * self.batch, name in ("k_proj", "v_proj")
        out = byte_count(o * rows, self.bits.cache if cached else self.bits.acts)
        return Op(
            name,
            layer,
            2 * i * o * rows,
            weight_bytes=byte_count(i * o, self.bits.weights),
            kv_write_bytes=out if cached else 0,
            act_bytes=byte_count(i * rows, self.bits.acts) + (0 if cached else out),
        )

    def attention(self, layer: int) -> list[Op]:
        d = self.spec.head_dim
        heads = self.spec.n_heads
        kv = self.spec.n_kv_heads
        a = self.bits.acts
        pairs = self.n * self.s * heads * self.batch  # a prefill's too: the whole square
        rows, scores = d * self.n * self.batch, byte_count(pairs, a)
        read = byte_count(self.s * d * kv * self.batch, self.bits.cache)
        query = byte_count(rows * (heads if self.n == 1 else kv), a)
        return [
            Op("qk_matmul", layer, 2 * d * pairs, kv_read_bytes=read, act_bytes=query + scores),
            Op("softmax", layer, 5 * pairs, act_bytes=2 * scores),
            Op(
                "sv_matmul",
                layer,
                2 * d * pairs,
                kv_read_bytes=read,
                act_bytes=scores + byte_count(rows * heads, a),
            ),
        ]

    def fused_attention(self, layer: int) -> list[Op]:
        """The three operators as one. A block has d rows: every buffer that they list has room for more."""
        d, heads = self.spec.head_dim, self.spec.n_heads
        blocks = math.ceil(self.n / d)
        read = byte_count(2 * blocks * self.s * d * heads * self.batch, self.bits.cache)
        moved = byte_count((d + 2 * self.s) * self.n * heads * self.batch, self.bits.acts)
        flops = (4 * d + 5) * self.n * self.s * heads * self.batch
        return [Op("fused_attention", layer, flops, kv_read_bytes=read, act_bytes=moved)]

    def pointwise(self, name: str, layer: int, flops: int, tensors: int) -> Op:
        elements = self.spec.d_model * self.n * self.batch
        return Op(name, layer, flops * elements, act_bytes=byte_count(tensors * elements, self.bits.acts))

    def head(self) -> Op:
        h, vocab = self.spec.d_model, self.spec.vocab
        weights, acts = byte_count(h * vocab, self.bits.weights), byte_count(h + vocab, self.bits.acts)
        return Op("lm_head", None, h * vocab * self.batch, weight_bytes=weights, act_bytes=acts)


# ---- compared with ours

MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PARTS: dict[str, tuple[str, ...]] = {  # the operators of both tables that are reported together
    "matrices of the layers": MATRICES,
    "attention": ("qk_matmul", "softmax", "sv_matmul", "fused_attention", "attention"),
    "norms": ("attn_norm", "ffn_norm"),
    "residual adds": ("attn_add", "ffn_add"),
    "activation": ("mlp_act", "swiglu"),
    "head": ("lm_head",),
}


@dataclass(frozen=True)
class PassPart:
    """One part of a pass by both tables. why: a sentence for each thing in which they differ; empty: they agree"""

    name: str
    theirs: Cost
    ours: Cost
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class CostComparison:
    """One pass by both tables: part by part, and as time on a machine."""

    parts: tuple[PassPart, ...]
    theirs: Estimate
    ours: Estimate

    @property
    def totals(self) -> tuple[Cost, Cost]:
        """The sums, theirs and ours."""
        return sum((x.theirs for x in self.parts), Cost()), sum((x.ours for x in self.parts), Cost())


def compare_costs(
    spec: ModelSpec,
    stage: Stage,
    length: int,
    machine: HardwareProfile,
    *,
    batch: int = 1,
    bits: BitWidths | None = None,
    fused: bool = False,
) -> CostComparison:
    """A pass by their table and by ours.

    Ours fuses attention where `fused` does, and its head reads one row, as theirs.
    """
    bits, n = bits or BitWidths(), length if stage == "prefill" else 1
    theirs = viewer_ops(spec, stage, length, batch=batch, bits=bits, fused=fused)
    ours = pass_ops(
        spec,
        PassShape(
            n,
            length - n,
            batch=batch,
            weight_bits=bits.weights,
            act_bits=bits.acts,
            kv_bits=bits.cache,
            fused=fused,
        ),
    )
    parts = []
    for name, ops in PARTS.items():
        a, b = (Cost.of(op for op in each if op.name in ops) for each in (theirs, ours))
        parts.append(
            PassPart(
                name,
                a,
                b,
                _difference_reasons(name, spec, n, batch, fused)
                if (a.flops, a.bytes) != (b.flops, b.bytes)
                else (),
            )
        )
    dtype = bits.dtype(machine)
    return CostComparison(tuple(parts), machine.time_us(theirs, dtype), machine.time_us(ours, dtype))


def _difference_reasons(part: str, spec: ModelSpec, n: int, batch: int, fused: bool) -> tuple[str, ...]:
    """Why the tables differ in a part."""
    if part == "head":
        more = (" Activations are those of one sequence, whatever the batch.",) if batch > 1 else ()
        return (f"One operation a weight is counted where a product takes two.{''.join(more)}",)
    if part == "activation":
        return (
            f"It works on the hidden width {spec.d_model} at 2 operations; the block's is {spec.d_ff}, at 5.",
        )
    if part == "residual adds":
        return ("One of two summands is read; ours reads both.",)
    if part != "attention":
        return ()
    heads = spec.n_heads
    kv = spec.n_kv_heads
    blocks = math.ceil(n / spec.head_dim)
    reasons = {
        "A prefill scores the whole square of pairs; causal attention scores half of it.": n > 1
        and spec.causal,
        f"Keys and values are read for {heads} query heads, and {kv} KV heads hold them.": fused
        and kv != heads,
        f"Each of {blocks} blocks of queries reads all keys and values; ours reads them once.": fused
        and blocks > 1,
        "Two numbers for each scored pair are written; a fused kernel writes d a head.": fused,
        f"Queries of {kv} heads are read where there are {heads}.": not fused and kv != heads and n > 1,
        "A sliding window is not known there: every row scores all before it.": any(spec.windows),
    }
    return tuple(why for why, holds in reasons.items() if holds)
