"""What torch counts while passes run, and what the cost model says of the same passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.cost.operators import Op
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.session.session import Session
from decodescope.engine.trace.records.events import DraftTree, Pass
from decodescope.engine.trace.records.phases import is_deciding_pass

Shape = Sequence[int]


def _product(x: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    """FLOPs of the product of x [..., in] and weight [out, in]."""
    return 2 * prod(x[:-1]) * prod(weight)


def _int4(x: Shape, q: Shape, group: Any, pair: Shape, *_: Any, **__: Any) -> int:
    return 2 * prod(x) * pair[1]  # pair [in / group, out, 2]


def _fused(q: Shape, k: Shape, *_: Any, **__: Any) -> int:
    return 4 * prod(q) * k[2]  # two products over all pairs, whatever the mask


aten, mkldnn = torch.ops.aten, torch.ops.mkldnn
# Operators that torch.utils.flop_counter does not know: those of CPUs, and products with one vector. A linear map counts as one
# operator. A decoder multiplies by `linear` where the processor packs no matrix of this type, and by `_linear_pointwise` where
# it does. Without an entry here, the counter would take `linear` apart in Python. Where rows are not contiguous, as those of a
# norm over x and -x, that gives a `bmm`. The kernel multiplies by `mm` there, and the `bmm` would count as attention. The
# counter looks up the overload to decide whether to take an operator apart, and the packet to count it.
FORMULAS = {
    aten.linear: _product,
    aten.linear.default: _product,
    mkldnn._linear_pointwise: _product,
    aten._weight_int8pack_mm: _product,
    aten._weight_int4pack_mm_for_cpu: _int4,
    aten._scaled_dot_product_flash_attention_for_cpu: _fused,
    aten.mv: lambda matrix, *_, **__: 2 * prod(matrix),
    aten.dot: lambda x, *_, **__: 2 * prod(x),
}
SCORING = ("bmm", "baddbmm", "_scaled_dot_product_flash_attention_for_cpu")  # what only attention calls


class Masks(TorchFunctionMode):
    """pairs: true entries of the masks of fused attention, all heads together;  square: the number if all entries were true."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = self.square = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            q, k = args[:2]
            shape, mask = (*q.shape[:3], k.shape[2]), kwargs.get("attn_mask")
            if kwargs.get("is_causal"):
                mask = torch.ones(shape[2:], dtype=torch.bool).tril()
            if mask is not None and mask.is_floating_point():
                mask = mask > -torch.inf  # the mask holds numbers that are added to the scores
            self.pairs += prod(shape) if mask is None else int(mask.expand(shape).sum())
            self.square += prod(shape)
        return func(*args, **kwargs)


@dataclass
class Counted:
    """One counted pass.

    products, scores: FLOPs of the products outside of attention and inside
    pairs: true entries of its masks, None where attention was not fused throughout
    inside: whether the head, where it ran, ran inside the pass
    """

    record: Pass
    products: int
    scores: int
    pairs: int | None
    inside: bool


def counting(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    """Record what lanes run from now on, in the order in which passes end."""
    counted: list[Counted] = []

    def watched(name: str) -> None:
        real = getattr(Lane, name)

        def run(lane: Lane, *args: Any, **more: Any) -> Any:
            with FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter, Masks() as masks:
                given = real(lane, *args, **more)
            each = {packet.__name__: n for packet, n in counter.get_flop_counts().get("Global", {}).items()}
            scores = sum(n for op, n in each.items() if op in SCORING)
            pairs = masks.pairs if scores == 4 * lane.decoder.spec.head_dim * masks.square else None
            counted.append(
                Counted(lane.passes[-1], sum(each.values()) - scores, scores, pairs, name == "forward")
            )
            return given

        monkeypatch.setattr(Lane, name, run)

    for name in ("forward", "states_before"):
        watched(name)
    return counted


@dataclass
class Priced:
    """The cost model's figures for the same pass; scores: without a mask, because attention kernels score masked pairs too."""

    products: int
    scores: int
    pairs: float


def priced(spec: ModelSpec, one: Counted, bits: int, draft: DraftTree | None) -> Priced:
    """Compute the figures from the operators of a recorded pass."""
    draft = draft if draft is not None and draft.parents else None
    alone = replace(one.record, shared=None, distinct=None)  # each sequence scores what it shares with others
    ops = ops_of(spec, alone, draft=draft, bits=bits)
    tests = ("exit_test", "exit_down", "exit_up")
    heads = ("lm_head", *tests) if one.inside else ()
    products = sum(op.flops for op in ops if op.name.endswith("_proj") or op.name in heads)
    attending = [op for op in ops if op.name == "attention"]
    queries = {
        op.layer: op.flops // (2 * spec.d_model * one.record.batch) for op in ops if op.name == "q_proj"
    }  # [rows, H, D]
    groups = {i: 1 / spec.kv_at(i) for i in range(spec.n_layers) if spec.kv_at(i)}
    scores = sum(4 * queries[op.layer] * entries(spec, op, bits) * groups[op.layer or 0] for op in attending)
    return Priced(products, round(scores), sum(op.flops for op in attending) / (4 * spec.head_dim + 5))


def entries(spec: ModelSpec, attention: Op, bits: int) -> float:
    """Return the entries that one attention operator reads, all KV heads together."""
    return attention.kv_read_bytes * 8 / bits / (2 * spec.head_dim)


def compared(session: Session, counted: list[Counted]) -> list[tuple[Counted, Priced]]:
    """Pair the counted passes of a finished session, for the models that have a price, with their prices."""
    trace = session.sink
    prices, pairs = PassPricer(trace.header), list[tuple[Counted, Priced]]()
    drafts = {
        id(one): step.draft if is_deciding_pass(one) else None for step in trace.steps for one in step.passes
    }
    drafts |= {id(one): None for one in trace.prefill.passes}
    for one in counted:
        if id(one.record) in drafts and one.record.lane in prices.specs:
            spec = prices.specs[one.record.lane]
            pairs.append((one, priced(spec, one, prices.bits or 0, drafts[id(one.record)])))
    return pairs
