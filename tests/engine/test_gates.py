"""Gates and slicing: a gate removes its part, and a sliced model gives the masked model's output in fewer bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import PassShape, pass_ops
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.forward.slicing import apply_gates, kept_heads, slice_by_gates
from decodescope.engine.model.layers.gates import Gates
from decodescope.engine.model.stores.cache import KVCache
from tests import toys

TEXT = [*toys.PROMPT, 7, 0, 11, 2, 2, 9, 10, 4]
WIDE = replace(toys.SPEC, n_heads=6, heads=())
SPECS = {"plain": WIDE, "windows": replace(WIDE, windows=(6, None, 4)), "capped": replace(WIDE, attn_cap=5.0)}


def biased(spec: ModelSpec, dtype: torch.dtype = torch.float64) -> Decoder:
    """A toy with a bias in every product, so that a bias which should disappear would show."""
    made, g = toys.decoder(spec, dtype=dtype), torch.Generator().manual_seed(5)
    for layer in made.layers:
        layer.out_bias, layer.down_bias = (
            torch.randn(spec.d_model, generator=g, dtype=dtype) for _ in range(2)
        )
        layer.gate_up_bias = torch.randn(2 * spec.d_ff, generator=g, dtype=dtype)
        layer.qkv_bias = torch.randn(len(layer.qkv), generator=g, dtype=dtype)
    return made


def chance(spec: ModelSpec, seed: int) -> Gates:
    """Random hard gates; a whole KV group of layer 1 is closed, so it has groups of 2 and 0, and others are uneven."""
    g = torch.Generator().manual_seed(seed)
    head, ffn = (torch.rand(spec.n_layers, n, generator=g) < 0.6 for n in (spec.n_heads, spec.d_ff))
    head[:] = torch.tensor([[1, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0], [1, 1, 0, 0, 0, 1]])
    return Gates(head.double(), ffn.double(), torch.ones(spec.n_layers, 2))


def one_by_one(decoder: Decoder, tokens: list[int], first: int) -> Tensor:
    """Logits [T, V] of a prompt: its first `first` tokens read at once, and the rest token by token."""
    cache, rows = KVCache(decoder.spec, dtype=decoder.dtype), []
    for begin, end in [(0, first), *((i, i + 1) for i in range(first, len(tokens)))]:
        rows.append(decoder.forward(Feed.causal_chain(tokens[begin:end], begin), cache)[0])
        cache.commit(range(end - begin))
    return torch.cat(rows)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_sliced_logits_are_masked_logits(spec: ModelSpec) -> None:
    decoder = biased(spec)
    for seed in range(3):
        gates = chance(spec, seed)
        cut = slice_by_gates(decoder, gates)
        assert cut.spec.uneven_at(0) == (3, 1) and cut.spec.kv_at(1) == 1, (
            "the test needs uneven groups and a dead KV head"
        )
        wanted = apply_gates(decoder, gates).forward(Feed.causal_chain(TEXT, 0), None)[0]
        whole = decoder.forward(Feed.causal_chain(TEXT, 0), None)[0]
        assert (wanted - whole).abs().max() > 0.1, "the gates must change something"
        torch.testing.assert_close(
            cut.forward(Feed.causal_chain(TEXT, 0), None)[0], wanted, atol=1e-9, rtol=1e-9
        )
        torch.testing.assert_close(one_by_one(cut, TEXT, 9), wanted, atol=1e-9, rtol=1e-9)


def test_a_closed_block_is_neither_computed_nor_cached() -> None:
    decoder, sub = biased(WIDE), torch.ones(3, 2)
    sub[1, 0] = sub[2, 1] = sub[0, 0] = 0
    head = torch.ones(3, 6)
    head[2] = 0  # all heads are closed, but the block runs: its bias stays
    gates = Gates(head, None, sub)
    cut = slice_by_gates(decoder, gates)
    wanted = apply_gates(decoder, gates).forward(Feed.causal_chain(TEXT, 0), None)[0]
    torch.testing.assert_close(one_by_one(cut, TEXT, 9), wanted, atol=1e-9, rtol=1e-9)
    assert cut.spec.absent_blocks == ("a0", "a1", "a2", "f2")
    cache = KVCache(cut.spec)
    cut.forward(Feed.causal_chain(TEXT, 0), cache)
    cache.commit(range(len(TEXT)))
    assert cache.nbytes == 0 and cache.fullest_length == len(TEXT)
    assert {op.layer for op in pass_ops(cut.spec, PassShape(1, 20)) if op.name == "attention"} == set()
    assert [op.layer for op in pass_ops(cut.spec, PassShape(1, 20)) if op.name == "down_proj"] == [0, 1]


def test_what_was_cut_takes_no_memory() -> None:
    """Bytes are counted from storages, and the spec counts the same parameters."""
    decoder = toys.decoder(WIDE)
    gates = chance(WIDE, 0)
    cut = slice_by_gates(decoder, gates)

    def held(x: Decoder) -> int:
        tensors = [t for w in x.layers for t in vars(w).values() if t is not None]
        return sum(t.untyped_storage().nbytes() for t in [*tensors, x.embed, x.norm, x.head]) // 4

    assert held(decoder) == WIDE.params and held(cut) == cut.spec.params < WIDE.params
    caches = []
    for one in (decoder, cut):
        caches.append(KVCache(one.spec))
        one.forward(Feed.causal_chain(TEXT, 0), caches[-1])
    assert caches[1].nbytes / caches[0].nbytes == sum(map(cut.spec.kv_at, range(3))) / 6 == 5 / 6
    weights = [
        sum(op.weight_bytes for op in pass_ops(x.spec, PassShape(1, 9, weight_bits=32)))
        for x in (decoder, cut)
    ]
    assert weights[0] - weights[1] == 4 * (WIDE.params - cut.spec.params)
    assert kept_heads(WIDE, gates) == [[3, 4, 5, 0], [3, 4], [0, 1, 5]]


def test_what_was_cut_can_be_cut_again() -> None:
    decoder = biased(WIDE)
    first, sub = chance(WIDE, 0), torch.ones(3, 2)
    sub[1, 0] = sub[0, 1] = 0
    head = torch.ones(3, 6)
    head[0, 1] = head[2, 2] = 0
    once = slice_by_gates(decoder, first)
    then = Gates(head, None, sub)
    wanted = apply_gates(once, then).forward(Feed.causal_chain(TEXT, 0), None)[0]
    twice = slice_by_gates(once, then)
    assert [twice.spec.groups_at(i) for i in range(3)] == [(2, 1), (), (2,)] and twice.spec.absent_blocks == (
        "a1",
        "f0",
    )
    torch.testing.assert_close(
        twice.forward(Feed.causal_chain(TEXT, 0), None)[0], wanted, atol=1e-9, rtol=1e-9
    )


def test_open_gates_are_the_model_and_soft_ones_have_a_gradient() -> None:
    decoder = toys.decoder(WIDE, dtype=torch.float64)
    ones = Gates(torch.ones(3, 6), torch.ones(3, 64), torch.ones(3, 2))
    whole = decoder.forward(Feed.causal_chain(TEXT, 0), None)
    assert torch.equal(apply_gates(decoder, ones).forward(Feed.causal_chain(TEXT, 0), None), whole)
    assert slice_by_gates(decoder, ones).spec == WIDE
    tables = [torch.ones(3, n, dtype=torch.float64, requires_grad=True) for n in (6, 64, 2)]
    apply_gates(decoder, Gates(*tables)).forward(Feed.causal_chain(TEXT, 0), None).logsumexp(
        -1
    ).sum().backward()
    for k, at in ((0, (1, 4)), (1, (2, 7)), (2, (0, 1))):
        ends = []
        for step in (1e-4, -1e-4):
            moved = [t.detach().clone() for t in tables]
            moved[k][at] += step
            ends.append(
                apply_gates(decoder, Gates(*moved))
                .forward(Feed.causal_chain(TEXT, 0), None)
                .logsumexp(-1)
                .sum()
            )
        slope = (ends[0] - ends[1]) / 2e-4
        assert abs(slope) > 1e-3 and tables[k].grad is not None
        assert abs(tables[k].grad[at] / slope - 1) < 1e-5


def test_gates_of_another_shape_and_soft_cuts_are_refused() -> None:
    decoder = toys.decoder(WIDE)
    with pytest.raises(ValueError, match=r"Gates.head is \[3, 4\]; for toy it must be \[3, 6\]"):
        apply_gates(decoder, Gates(torch.ones(3, 4)))
    with pytest.raises(ValueError, match="only what is closed can be cut out"):
        slice_by_gates(decoder, Gates(torch.full((3, 6), 0.5)))
