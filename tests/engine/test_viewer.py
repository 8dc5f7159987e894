"""LLM-Viewer's table: the figures that running it gives, to the digit, and where they differ from ours, in numbers and text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import PassShape, pass_ops
from decodescope.engine.cost.hardware import DEVICES
from decodescope.engine.cost.operators import Cost
from decodescope.engine.cost.viewer import PARTS, BitWidths, compare_costs, viewer_ops

LLAMA2 = ModelSpec("Llama-2-7B", 32, 32, 32, 128, 4096, 11008, 32000)
LLAMA3 = ModelSpec("Llama-3-8B", 32, 32, 8, 128, 4096, 14336, 128256)
TINY = ModelSpec("tiny", 8, 8, 4, 32, 256, 768, 4096)
EIGHT = BitWidths(8, 8, 8)

GOLDEN = [  # spec, stage, positions, bits, machine, FLOPs, bytes, us
    (LLAMA2, "decode", 2048, BitWidths(), "a6000", 1.41697e10, 1.43132e10, 18636.9),
    (LLAMA2, "prefill", 2048, BitWidths(), "a6000", 2.87512e13, 6.58611e10, 226879),
    (LLAMA2, "decode", 2048, BitWidths(4), "a6000", 1.41697e10, 4.40253e9, 5732.47),
    (LLAMA2, "decode", 2048, EIGHT, "a6000", 1.41697e10, 7.15658e9, 9318.46),
    (LLAMA2, "prefill", 2048, EIGHT, "a6000", 2.87512e13, 3.29306e10, 113433),
    (TINY, "decode", 256, BitWidths(), "a6000", 1.58474e7, 1.59995e7, 20.8327),
    (LLAMA3, "decode", 2048, BitWidths(), "h100-sxm", 1.55706e10, 1.53034e10, 4981.59),
]


@pytest.mark.parametrize(("spec", "stage", "length", "bits", "machine", "flops", "moved", "us"), GOLDEN)
def test_golden_numbers_are_reproduced_to_the_digit(
    spec, stage, length, bits, machine, flops, moved, us
) -> None:  # type: ignore[no-untyped-def]
    ops = viewer_ops(spec, stage, length, bits=bits)
    cost = Cost.of(ops)
    assert (f"{cost.flops:.5e}", f"{cost.bytes:.5e}") == (f"{flops:.5e}", f"{moved:.5e}")
    on = DEVICES[machine]
    assert f"{on.time_us(ops, bits.dtype(on)).us:.6g}" == f"{us:g}"


def test_one_projection_alone_is_theirs_too() -> None:
    op = next(x for x in viewer_ops(LLAMA2, "decode", 2048) if x.name == "q_proj")
    assert (f"{op.flops:.5e}", f"{op.bytes:.5e}", f"{op.intensity:.4f}") == (
        "3.35544e+07",
        "3.35708e+07",
        "0.9995",
    )
    estimate = DEVICES["a6000"].time_us([op])
    assert f"{estimate.us:.2f}" == "43.71" and estimate.bound == "memory"


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("stage", "n"), [("decode", 1), ("prefill", 2048)])
@pytest.mark.parametrize("spec", [LLAMA2, LLAMA3])
def test_the_parts_are_the_whole_and_each_difference_has_its_words(
    spec: ModelSpec, stage, n: int, fused: bool
) -> None:  # type: ignore[no-untyped-def]
    both = compare_costs(spec, stage, 2048, DEVICES["a6000"], fused=fused)
    assert [x.name for x in both.parts] == [*PARTS]
    theirs, ours = both.totals
    assert theirs == Cost.of(viewer_ops(spec, stage, 2048, fused=fused))
    assert ours == Cost.of(pass_ops(spec, PassShape(n, 2048 - n, fused=fused)))
    for part in both.parts:
        parted = (part.theirs.flops, part.theirs.bytes) != (part.ours.flops, part.ours.bytes)
        assert bool(part.why) == parted, part.name
    apart = {part.name for part in both.parts if part.why}
    assert apart >= {"head", "activation", "residual adds"} and "matrices of the layers" not in apart
    assert ("attention" in apart) == (fused or stage == "prefill")


def test_fused_attention_reads_query_heads_where_ours_reads_the_heads_that_hold_keys() -> None:
    part = next(
        x
        for x in compare_costs(LLAMA3, "decode", 2048, DEVICES["a6000"], fused=True).parts
        if x.name == "attention"
    )
    assert (f"{part.theirs.kv_read_bytes:.2e}", f"{part.ours.kv_read_bytes:.2e}") == ("1.07e+09", "2.68e+08")
    assert any("32 query heads" in why and "8 KV heads" in why for why in part.why)


def test_without_their_integer_peak_a_machine_is_priced_in_halves() -> None:
    laptop = DEVICES["i9-13900k"]
    assert (
        EIGHT.dtype(laptop) is None
        and EIGHT.dtype(DEVICES["a6000"]) == "int8"
        and BitWidths(4).dtype(DEVICES["a6000"]) is None
    )
    assert compare_costs(TINY, "decode", 256, laptop, bits=EIGHT).theirs.us > 0, "theirs has no answer there"


def test_a_pass_of_nothing_is_refused_and_a_window_is_told() -> None:
    with pytest.raises(ValueError, match="at least one position"):
        viewer_ops(TINY, "decode", 0)
    near = compare_costs(replace(TINY, windows=(16,) * 8), "decode", 256, DEVICES["a6000"]).parts
    assert any("sliding window" in why for part in near for why in part.why)
