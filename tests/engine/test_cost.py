"""The cost of a pass: golden numbers, properties that tie it to a real run, and the arithmetic of drafting."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import (
    Cost,
    PassShape,
    cost_of,
    exit_test,
    expected_tokens,
    expected_tree_tokens,
    flop_factor,
    grouped_bits,
    measured_speedup,
    ops_of,
    pass_cost,
    pass_ops,
    speedup,
    tree_pairs,
)
from decodescope.engine.trace.records.events import DraftTree, Pass

LLAMA2 = ModelSpec("Llama-2-7B", 32, 32, 32, 128, 4096, 11008, 32000)
LLAMA3 = ModelSpec("Llama-3-8B", 32, 32, 8, 128, 4096, 14336, 128256)
TINY = ModelSpec("tiny", 8, 8, 4, 32, 256, 768, 4096)

GOLDEN = [  # spec, new positions, held, rows of the head, FLOPs, bytes
    (LLAMA2, 1, 2047, 1, 1.43022e10, 1.42982e10),
    (LLAMA2, 2048, 0, 1, 2.76447e13, 3.52930e10),
    (LLAMA2, 2048, 0, 2048, 2.81813e13, 3.54408e10),
    (LLAMA3, 1, 2047, 1, 1.60979e10, 1.52892e10),
    (LLAMA3, 2048, 0, 1, 2.97081e13, 3.80950e10),
    (TINY, 1, 255, 1, 1.69226e7, 1.59012e7),
    (TINY, 256, 0, 1, 3.51959e9, 5.76804e7),
]


@pytest.mark.parametrize(("spec", "n", "held", "logits", "flops", "moved"), GOLDEN)
def test_golden_flops_and_bytes(
    spec: ModelSpec, n: int, held: int, logits: int, flops: float, moved: float
) -> None:
    cost = pass_cost(spec, PassShape(n, held, logits=logits))
    assert f"{cost.flops:.5e}" == f"{flops:.5e}"
    assert f"{cost.bytes:.5e}" == f"{moved:.5e}"


def test_passes_and_layers_add_up() -> None:
    whole = pass_cost(TINY, PassShape(3, 17))
    one_layer = replace(TINY, n_layers=1)
    body, head = (
        pass_cost(one_layer, PassShape(3, 17, logits=0)),
        pass_cost(one_layer, PassShape(3, 17, attn_layers=0, ffn_layers=0)),
    )
    assert sum([body] * 8, Cost()) + head == whole
    first, rest = pass_ops(TINY, PassShape(3, 17))[:20], pass_ops(TINY, PassShape(3, 17))[20:]
    assert Cost.of(first) + Cost.of(rest) == whole
    assert whole.launches == 13 * 8 + 1


def test_everything_but_weights_is_linear_in_the_batch() -> None:
    one, four = pass_cost(TINY, PassShape(2, 30)), pass_cost(TINY, PassShape(2, 30, batch=4))
    assert four.weight_bytes == one.weight_bytes
    for kind in ("flops", "kv_read_bytes", "kv_write_bytes", "act_bytes"):
        assert getattr(four, kind) == 4 * getattr(one, kind) > 0


@pytest.mark.parametrize("spec", [LLAMA2, LLAMA3])
def test_decode_flops_are_two_per_parameter_and_attention(spec: ModelSpec) -> None:
    used = spec.params - spec.vocab * spec.d_model  # the input embedding is looked up, not multiplied
    rule = 2 * used + 4 * 2047 * spec.d_model * spec.n_layers
    assert pass_cost(spec, PassShape(1, 2047)).flops == pytest.approx(rule, rel=0.005)


def test_linear_flops_equal_the_frameworks_counter_exactly() -> None:
    n, held, d = 5, 11, TINY.head_dim
    ops = pass_ops(TINY, PassShape(n, held, logits=n))
    shapes = {
        "q_proj": (256, 256),
        "k_proj": (256, 128),
        "v_proj": (256, 128),
        "o_proj": (256, 256),
        "gate_proj": (256, 768),
        "up_proj": (256, 768),
        "down_proj": (768, 256),
        "lm_head": (256, 4096),
    }
    with FlopCounterMode(display=False) as counted:
        for op in ops:
            if op.name in shapes:
                i, o = shapes[op.name]
                F.linear(torch.zeros(n, i), torch.zeros(o, i))
    assert counted.get_total_flops() == sum(op.flops for op in ops if op.name in shapes)
    with FlopCounterMode(display=False) as counted:  # attention is counted as the full rectangle n x T
        q, k = torch.zeros(TINY.n_heads, n, d), torch.zeros(TINY.n_heads, held + n, d)
        (q @ k.mT) @ k
    rectangle = pass_ops(TINY, PassShape(n, held, pairs=n * (held + n)))
    attention = next(op for op in rectangle if op.name == "attention")
    assert (
        attention.flops * 4 * d // (4 * d + 5)
        == counted.get_total_flops()
        == 4 * d * TINY.n_heads * n * (held + n)
    )


def test_four_bit_weights_save_three_quarters_of_the_weight_bytes_and_nothing_else() -> None:
    full, packed = pass_cost(LLAMA2, PassShape(1, 100)), pass_cost(LLAMA2, PassShape(1, 100, weight_bits=4))
    assert full.bytes - packed.bytes == 0.75 * full.weight_bytes
    assert full.flops == packed.flops
    assert grouped_bits(4, 128) == 4.25
    scaled = pass_cost(
        LLAMA2, PassShape(1, 100, weight_bits=grouped_bits(4, 128), head_bits=16, dequant=True)
    )
    matrices = full.weight_bytes // 2 - LLAMA2.vocab * LLAMA2.d_model
    assert scaled.weight_bytes == matrices * 4.25 / 8 + 2 * LLAMA2.vocab * LLAMA2.d_model
    assert scaled.flops == full.flops + full.weight_bytes  # two operations per weight, two bytes per weight


def test_single_steps_cost_at_least_one_pass_over_the_same_tokens() -> None:
    together = pass_cost(TINY, PassShape(6, 40, logits=6))
    apart = sum((pass_cost(TINY, PassShape(1, 40 + i)) for i in range(6)), Cost())
    assert apart.flops == together.flops  # the same work...
    assert apart.weight_bytes == 6 * together.weight_bytes  # ...but the weights are read six times
    assert apart.bytes > together.bytes


def test_a_layer_that_did_not_run_costs_nothing_and_a_propagated_one_its_keys_and_values() -> None:
    full, half = (
        pass_cost(TINY, PassShape(1, 50, logits=0)),
        pass_cost(TINY, PassShape(1, 50, logits=0, attn_layers=4, ffn_layers=4)),
    )
    assert half + half == full
    filled = pass_ops(TINY, PassShape(1, 50, logits=0, attn_layers=4, ffn_layers=4, propagated=4))
    extra = [op for op in filled if op.layer is not None and op.layer >= 4]
    assert [op.name for op in extra] == ["attn_norm", "k_proj", "v_proj"] * 4
    assert Cost.of(extra).flops == 4 * (2 * 2 * 256 * 128 + 7 * 256)
    assert pass_cost(TINY, PassShape(1, 50, attn_layers={1, 6})) == pass_cost(
        TINY, PassShape(1, 50, attn_layers=2)
    )


def test_entries_may_differ_by_layer() -> None:
    kept = [10, 20, 30, 40, 50, 60, 70, 80]
    read = sum(2 * (held + 1) * 4 * 32 * 2 for held in kept)
    assert pass_cost(TINY, PassShape(1, kept)).kv_read_bytes == read
    with pytest.raises(ValueError, match="8 layers"):
        pass_cost(TINY, PassShape(1, [1, 2]))


@pytest.mark.parametrize(("n", "held"), [(1, 0), (1, 9), (7, 0), (7, 3), (7, 30), (4, 5)])
def test_pairs_and_entries_of_a_sliding_window_equal_a_counted_mask(n: int, held: int) -> None:
    window = 6
    spec = replace(TINY, windows=(window,) * 8)
    query, entry = torch.arange(held, held + n)[:, None], torch.arange(held + n)[None]
    mask = (entry <= query) & (entry > query - window)
    attention = next(op for op in pass_ops(spec, PassShape(n, held)) if op.name == "attention")
    assert attention.flops == (4 * 32 + 5) * 8 * int(mask.sum())
    assert attention.kv_read_bytes == 2 * int(mask.any(0).sum()) * 4 * 32 * 2


def test_tree_pairs_count_the_mask_of_a_tree() -> None:
    parents, held = [-1, -1, 0, 0, 2], 9
    ancestors = [{0}, {1}, {0, 2}, {0, 3}, {0, 2, 4}]  # the ancestors of each node, itself included
    assert tree_pairs(parents, held) == (held + 1) + sum(held + 1 + len(a) for a in ancestors)
    chain = [-1, 0, 1]
    assert tree_pairs(chain, held) == 4 * held + 4 * 5 // 2
    assert tree_pairs(chain, held, tokens=6) == 6 * held + 6 * 7 // 2


def test_a_recorded_pass_is_priced_by_its_own_sizes() -> None:
    verify = Pass("target", "verify", tokens=6, held=9, wall_us=1.0)
    draft = DraftTree([5, 6, 7, 8, 9], [-1, -1, 0, 0, 2], [1.0] * 5)
    assert cost_of(TINY, verify, draft=draft, bits=32) == pass_cost(
        TINY,
        PassShape(
            6, 9, logits=6, pairs=tree_pairs(draft.parents, 9), weight_bits=32, act_bits=32, kv_bits=32
        ),
    )
    assert cost_of(TINY, Pass("target", "prefill", 12, 0, 1.0)) == pass_cost(TINY, PassShape(12, 0, logits=1))
    exited = Pass("target", "draft", 1, 20, 1.0, attn=3, ffn=3, propagated=5)
    assert cost_of(TINY, exited) == pass_cost(
        TINY, PassShape(1, 20, attn_layers=3, ffn_layers=3, propagated=5)
    )
    assert Cost.of(ops_of(TINY, exited)) == cost_of(TINY, exited)


def test_a_price_that_takes_the_scores_once_is_the_sum_of_all_operators() -> None:
    """For like layers, the scores are priced once and the rest of the price is kept; otherwise each operator is priced."""
    shapes = [TINY, replace(TINY, causal=False), replace(TINY, widths=tuple(range(96, 104)))]
    shapes += [replace(TINY, windows=(5, None) * 4), replace(TINY, groups=((2, 2), (1,)) * 4)]
    shapes += [replace(TINY, bits=(*((4.25, 8.0, 4.0, 16.0),) * 8, (3.5,)))]
    sizes = [
        {},
        {"batch": 3, "again": 7},
        {"logits": 0},
        {"logits": 3, "head_bits": 8.0},
        {"kv_bits": 3.3, "read_bits": 2.7},
    ]
    sizes += [
        {"weight_bits": 4.25, "dequant": True, "act_bits": 32},
        {"pairs": 31},
        {"pairs": 31, "fused": False, "batch": 2},
    ]
    sizes += [{"attn_layers": 0}, {"ffn_layers": [1]}, {"attn_layers": 3, "propagated": 5}, {"copied": [2]}]
    sizes += [{"bounds": [4] * 8}]
    for spec in shapes:
        for more in sizes:
            for n, held in ((1, 0), (5, 9), (5, 10), (5, 9)):
                assert pass_cost(spec, PassShape(n, held, **more)) == Cost.of(
                    pass_ops(spec, PassShape(n, held, **more))
                ), (
                    spec,
                    more,
                    n,
                    held,
                )
    draft = DraftTree([5, 6, 7, 8, 9], [-1, -1, 0, 0, 2], [1.0] * 5)
    passes = [Pass("target", "verify", 6, held, 1.0) for held in (9, [9] * 8, [[9, 7, 9, 9]] * 8)]
    passes += [
        replace(passes[0], batch=2, shared=4),
        replace(passes[0], pending=3),
        replace(passes[0], joined=[(2, 1)]),
    ]
    passes += [replace(passes[0], attn=5, ffn=5, asks="head", tests=[2, 5])]
    for spec in shapes[:4]:
        for one in passes:
            assert cost_of(spec, one, draft=draft, bits=32) == Cost.of(
                ops_of(spec, one, draft=draft, bits=32)
            )


def test_unfused_attention_moves_the_scores_four_times() -> None:
    fused, plain = pass_cost(TINY, PassShape(3, 20)), pass_cost(TINY, PassShape(3, 20, fused=False))
    assert plain.flops == fused.flops
    assert plain.bytes - fused.bytes == 8 * 4 * 8 * (3 * 20 + 6) * 2


def test_exit_tests_are_priced_by_kind() -> None:
    head = next(op for op in pass_ops(TINY, PassShape(1, 0)) if op.name == "lm_head")
    test = exit_test(TINY, "head", layer=3)
    assert (test.flops, test.bytes, test.layer) == (head.flops, head.bytes, 3)
    assert exit_test(TINY, "classifier", classes=2).flops == 2 * 256 * 2
    assert exit_test(TINY, "cosine").flops == 3 * 256


def test_testing_after_every_layer_can_cost_more_than_it_saves() -> None:
    """Tiny, exit at depth 4, in units of one layer's weight bytes: a test per layer 9.7, one test 5.7, no exit 9.3."""
    layer = pass_cost(TINY, PassShape(1, 0, logits=0)).weight_bytes / 8
    left = pass_cost(TINY, PassShape(1, 0, logits=0, attn_layers=4, ffn_layers=4, propagated=4)).weight_bytes
    test = exit_test(TINY).weight_bytes
    assert (left + 4 * test) / layer == pytest.approx(9.7, abs=0.05)
    assert (left + test) / layer == pytest.approx(5.7, abs=0.05)
    assert pass_cost(TINY, PassShape(1, 0)).weight_bytes / layer == pytest.approx(9.33, abs=0.01)
    assert pass_cost(TINY, PassShape(1, 0)).weight_bytes / (left + test) == pytest.approx(1.65, abs=0.01)


@pytest.mark.parametrize(
    ("alpha", "gamma", "draft", "tokens", "gain"),
    [(0.8, 4, 0.05, 3.3616, 2.8013), (0.6, 4, 0.05, 2.3056, 1.9213), (0.5, 4, 0.5, 1.9375, 0.6458)],
)
def test_check_values_of_the_drafting_formulas(
    alpha: float, gamma: int, draft: float, tokens: float, gain: float
) -> None:
    assert round(expected_tokens(alpha, gamma), 4) == tokens
    assert round(speedup(alpha, gamma, draft), 4) == gain


def test_flop_factor_and_limits_of_the_drafting_formulas() -> None:
    assert round(flop_factor(0.8, 4, 0.05), 4) == 1.5469
    assert expected_tokens(1, 4) == 5 and expected_tokens(0, 4) == 1
    assert speedup(0.8, 4, 0.05, verify=1.1, overhead=0.1) < speedup(0.8, 4, 0.05)
    assert measured_speedup(12, base_us=100, spent_us=600) == 2.0


def test_a_chain_is_a_tree_and_siblings_add_their_chances() -> None:
    assert expected_tree_tokens([-1, 0, 1, 2], [0.8] * 4) == pytest.approx(expected_tokens(0.8, 4))
    assert expected_tree_tokens([-1, -1, 0], [0.5, 0.2, 0.5]) == pytest.approx(1 + 0.5 + 0.2 + 0.25)


@pytest.mark.parametrize(
    ("layers", "exit_at", "head", "alpha", "gamma", "gain"),
    [
        (32, 8, 0.65, 0.8, 4, 1.63),
        (32, 8, 0.65, 0.7, 6, 1.18),
        (8, 2, 1.33, 0.8, 4, 1.38),
        (8, 3, 1.33, 0.7, 3, 1.06),
        (8, 4, 1.33, 0.6, 3, 0.80),
    ],
)
def test_self_speculation_examples(
    layers: int, exit_at: int, head: float, alpha: float, gamma: int, gain: float
) -> None:
    """A draft pass reads `exit_at` layers and the head, a target pass all layers and the head."""
    assert speedup(alpha, gamma, (exit_at + head) / (layers + head)) == pytest.approx(gain, abs=0.005)


@pytest.mark.parametrize(("spec", "share"), [(TINY, 1.33), (LLAMA2, 0.65), (LLAMA3, 2.41)])
def test_the_head_weighs_this_many_layers(spec: ModelSpec, share: float) -> None:
    layer = pass_cost(replace(spec, n_layers=1), PassShape(1, 0, logits=0)).weight_bytes
    assert exit_test(spec).weight_bytes / layer == pytest.approx(share, abs=0.005)


def test_cost_and_hardware_do_not_import_torch() -> None:
    code = "import sys, decodescope.engine.cost.hardware; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
