"""The roofline: golden times, labels, the table of machines, and the measurement of the current machine."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toys

from decodescope.app.commands.hardware import device_rows
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import PassShape, pass_cost, pass_ops
from decodescope.engine.cost.hardware import (
    DEVICES,
    HardwareProfile,
    critical_tokens,
    device,
    load_profile,
    mbu,
    mfu,
    profile_path,
    roof,
    save_profile,
    verify_curve,
)
from decodescope.engine.cost.pass_curve import PassCurve
from decodescope.engine.decoding.shared import prefill_time as timing_reading
from decodescope.engine.timing import measure as bench

LLAMA2 = ModelSpec("Llama-2-7B", 32, 32, 32, 128, 4096, 11008, 32000)
LLAMA3 = ModelSpec("Llama-3-8B", 32, 32, 8, 128, 4096, 14336, 128256)
TINY = ModelSpec("tiny", 8, 8, 4, 32, 256, 768, 4096)
A6000 = device("a6000")
LAPTOP = HardwareProfile("laptop", peak_flops=100e9, bandwidth=15e9)


@pytest.mark.parametrize(
    ("spec", "n", "held", "logits", "ms", "digits"),
    [
        (LLAMA2, 1, 2047, 1, 18.6175, 4),
        (LLAMA2, 2048, 0, 1, 191.454, 3),
        (LLAMA2, 2048, 0, 2048, 194.580, 3),
        (LLAMA3, 1, 2047, 1, 19.9078, 4),
        (LLAMA3, 2048, 0, 1, 207.499, 3),
        (TINY, 1, 255, 1, 0.0207, 4),
        (TINY, 256, 0, 1, 0.0751, 4),
    ],
)
def test_golden_times_on_an_a6000(
    spec: ModelSpec, n: int, held: int, logits: int, ms: float, digits: int
) -> None:
    assert round(A6000.time_us(pass_ops(spec, PassShape(n, held, logits=logits))).us / 1e3, digits) == ms


@pytest.mark.parametrize(
    ("bits", "curve"),
    [
        (16, [1, 1.001, 1.002, 1.005, 1.011, 1.024, 1.048, 1.096, 1.367, 2.746]),
        (4, [1, 1.002, 1.007, 1.017, 1.037, 1.077, 1.290, 2.335, 4.454, 8.947]),
    ],
)
def test_verify_curve_of_llama2_on_an_a100(bits: int, curve: list[float]) -> None:
    counts = [2**e for e in range(10)]
    found = verify_curve(device("a100-40g"), LLAMA2, counts, PassShape(1, 2047, weight_bits=bits))
    assert [round(v, 3) for v in found] == curve


def test_verify_curve_of_the_tiny_model_on_a_laptop() -> None:
    found = verify_curve(
        LAPTOP, TINY, [1, 2, 4, 8, 16, 32, 64], PassShape(1, 255, weight_bits=32, act_bits=32, kv_bits=32)
    )
    assert [round(v, 3) for v in found] == [1, 1.011, 1.033, 1.089, 1.355, 2.721, 5.483]


def test_verify_curve_reads_what_was_measured() -> None:
    measured = PassCurve({1: 100.0, 2: 150.0, 8: 600.0})
    modelled = verify_curve(LAPTOP, TINY, [64], PassShape(1, 255))
    found = verify_curve(LAPTOP, TINY, [1, 2, 5, 64], PassShape(1, 255), measured=measured)
    assert found == pytest.approx([1.0, 1.5, 3.75, *modelled])


def test_tokens_until_a_linear_is_bound_by_arithmetic() -> None:
    assert round(critical_tokens(device("a100-40g"), 16)) == 201
    assert round(critical_tokens(device("a100-40g"), 4)) == 50
    assert round(critical_tokens(device("h100-sxm"), 16)) == 322
    assert [round(critical_tokens(device("i9-13900k"), bits)) for bits in (16, 32)] == [15, 31]
    assert critical_tokens(device("a100-40g"), 16, batch=4) == critical_tokens(device("a100-40g"), 4)


@pytest.mark.parametrize(
    ("name", "ridge"),
    [
        ("v100", 124),
        ("a6000", 202),
        ("a100-40g", 201),
        ("a100-80g", 153),
        ("a40", 215),
        ("h100-sxm", 322),
        ("h100-pcie", 369),
        ("l40", 210),
        ("i9-13900k", 15.4),
    ],
)
def test_ridges_of_the_listed_machines(name: str, ridge: float) -> None:
    assert DEVICES[name].ridge() == pytest.approx(ridge, abs=0.6)
    assert DEVICES[name].kind == "carried over"


def test_the_makers_sheet_stands_beside_the_carried_over_figure() -> None:
    listed, sheet = device("h100-sxm"), device("h100-sxm-vendor")
    assert (listed.bandwidth, sheet.bandwidth) == (3072e9, 3350e9)
    assert sheet.kind == "vendor" and "LLM-Viewer" in listed.source
    with pytest.raises(ParamError, match="known"):
        device("abacus")


def test_each_bound_says_which_it_is_and_the_whole_step_is_never_longer() -> None:
    for n in (1, 64, 2048):
        single, whole = (
            A6000.time_us(pass_ops(LLAMA2, PassShape(n, 0))),
            A6000.time_us(pass_cost(LLAMA2, PassShape(n, 0))),
        )
        assert (single.rule, whole.rule) == ("per operator", "whole step")
        assert whole.us <= single.us * (1 + 1e-12) and whole.intensity == single.intensity
        assert single.us == single.compute_us + single.memory_us + single.launch_us
    assert A6000.time_us(pass_ops(LLAMA2, PassShape(1, 0))).bound == "memory"
    assert A6000.time_us(pass_ops(LLAMA2, PassShape(2048, 0))).bound == "compute"


def test_launches_dominate_a_tiny_model_and_are_charged_per_operator() -> None:
    slow = replace(A6000, launch_us=5.0)
    ops = pass_ops(TINY, PassShape(1, 255))
    with_launches, without = slow.time_us(ops), A6000.time_us(ops)
    assert with_launches.bound == "launch"
    assert with_launches.us == pytest.approx(without.us + 5.0 * len(ops))


def test_what_fits_the_cache_is_read_at_the_caches_speed() -> None:
    cached = replace(LAPTOP, cache_bandwidth=150e9, cache_bytes=32 * 2**20)
    small, large = pass_cost(TINY, PassShape(1, 10)), pass_cost(LLAMA2, PassShape(1, 10))
    assert cached.time_us(small).resident and not cached.time_us(large).resident
    assert cached.time_us(small).us < LAPTOP.time_us(small).us and not LAPTOP.time_us(small).resident
    assert cached.time_us(small, resident=False).us == LAPTOP.time_us(small).us
    assert cached.time_us(large).us == LAPTOP.time_us(large).us


def test_the_roof_is_a_slope_and_a_ceiling_and_utilisation_is_a_share_of_it() -> None:
    assert roof(LAPTOP, [1, LAPTOP.ridge(), 1000]) == [15e9, 100e9, 100e9]
    cost = pass_cost(LLAMA2, PassShape(1, 2047))
    best = A6000.time_us(cost)
    assert mbu(A6000, cost, best.us) == pytest.approx(1)
    assert mbu(A6000, cost, best.us, "weights") < mbu(A6000, cost, best.us, "weights+kv") < 1
    assert mfu(A6000, cost, best.us) == pytest.approx(best.intensity / A6000.ridge())


def test_the_peak_follows_the_dtype() -> None:
    assert A6000.peak() == A6000.peak("float16") == A6000.peak("bfloat16") == 154.8385e12
    assert A6000.peak("int8") == 309.7e12
    with pytest.raises(ParamError, match="float64"):
        A6000.peak("float64")


@pytest.mark.parametrize("figures", [(0.0, 1e9), (1e9, -1.0), (math.nan, 1e9), (1e9, math.inf)])
def test_a_custom_machine_must_make_sense(figures: tuple[float, float]) -> None:
    with pytest.raises(ParamError, match="above 0"):
        HardwareProfile("mine", *figures)
    with pytest.raises(ParamError, match="empty"):
        HardwareProfile("mine", {}, 1e9)


@pytest.mark.parametrize(
    "profile", [LAPTOP, A6000, replace(LAPTOP, cache_bandwidth=1e11, cache_bytes=5, kind="measured")]
)
def test_a_profile_survives_json_and_the_disk(profile: HardwareProfile, tmp_path: Path) -> None:
    assert HardwareProfile.from_record(json.loads(json.dumps(profile.record()))) == profile
    key = {"machine": "AMD EPYC(TM) 9/4", "torch": "2.9+cpu", "threads": 2, "dtype": "float32"}
    path = save_profile(profile, key, tmp_path)
    assert path == profile_path(key, tmp_path) and tmp_path in path.parents
    assert load_profile(key, tmp_path) == profile
    assert load_profile({**key, "threads": 1}, tmp_path) is None
    path.write_text("{", encoding="utf-8")
    assert load_profile(key, tmp_path) is None


def test_an_estimate_is_plain_data() -> None:
    made = json.loads(json.dumps(A6000.time_us(pass_ops(TINY, PassShape(1, 5))).record()))
    assert made["rule"] == "per operator" and made["us"] > 0


def test_this_machine_is_measured_once_and_then_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = bench.measure

    def counted(*args: object) -> HardwareProfile:
        calls.append(args)
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(bench, "measure", counted)
    threads, began = torch.get_num_threads(), time.perf_counter()
    first = bench.profile_here("float32", "cpu", data_dir=tmp_path)
    assert time.perf_counter() - began < 10
    for figure in (first.peak("float32"), first.bandwidth, first.launch_us, *first.details.values()):
        assert math.isfinite(figure) and figure > 0
    assert (first.cache_bandwidth is None) == (first.cache_bytes is None)
    assert first.kind == "measured" and torch.get_num_threads() == threads
    again = bench.profile_here(torch.float32, "cpu", data_dir=tmp_path)
    assert again == first and len(calls) == 1
    assert len(list((tmp_path / "profiles").iterdir())) == 1


def test_another_dtype_or_thread_count_or_a_refresh_is_another_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def quick(dtype: object, device: object, threads: object) -> HardwareProfile:
        calls.append((dtype, threads))
        return LAPTOP

    monkeypatch.setattr(bench, "measure", quick)
    here = bench.profile_here
    here("float32", data_dir=tmp_path)
    here("bfloat16", data_dir=tmp_path)
    here("float32", data_dir=tmp_path, threads=7)
    here("float32", data_dir=tmp_path)
    assert len(calls) == 3
    here("float32", data_dir=tmp_path, refresh=True)
    assert len(calls) == 4
    (tmp_path / "a file").touch()
    # it cannot be stored, but is measured all the same
    assert here("float32", data_dir=tmp_path / "a file") == LAPTOP
    with pytest.raises(ValueError, match="floating"):
        here("int8", data_dir=tmp_path)


def test_the_same_processor_with_other_instructions_is_another_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A virtual machine may hide AVX-512 and keep the processor's name."""
    keys = []
    for kernels in ("AVX2", "AVX512"):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda kernels=kernels: kernels)
        keys.append(bench.profile_key("bfloat16"))
    assert keys[0]["machine"] == keys[1]["machine"] and profile_path(keys[0]) != profile_path(keys[1])


def test_what_reading_a_prompt_takes_is_its_passes_and_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = toys.target().decoder
    spec, bits = decoder.spec, 8 * decoder.dtype.itemsize
    monkeypatch.setattr(timing_reading, "load_profile", lambda key: None)
    mib = spec.kv_bytes(812, decoder.dtype.itemsize) / 2**20
    assert (
        timing_reading.describe_prefill_time(decoder, 1030, 300) == f"3 passes over a cache of {mib:.1f} MiB"
    )
    assert timing_reading.describe_prefill_time(decoder, 512, 300).startswith("1 pass over")
    slow = HardwareProfile("slow", {"float64": 1e6, "float32": 1e6}, 1e6)
    monkeypatch.setattr(timing_reading, "load_profile", lambda key: slow)
    us = 0.0
    for rows, held in ((512, 0), (512, 300), (6, 300)):
        us += slow.time_us(
            pass_cost(spec, PassShape(rows, held, weight_bits=bits, act_bits=bits, kv_bits=bits))
        ).us
    assert us > 1e5 and timing_reading.describe_prefill_time(decoder, 1030, 300).endswith(
        f" MiB, {us / 1e6:.1f} s here at best"
    )


def test_every_listed_machine_has_a_source_and_figures_that_a_machine_can_have() -> None:
    assert len(DEVICES) >= 40
    for name, one in DEVICES.items():
        assert (
            re.fullmatch(r"[a-z0-9-]+", name)
            and one.kind in ("carried over", "vendor", "recalled", "derived")
            and one.source
        )
        cpu = one.memory_bytes is None and name != "v100"
        # bytes, not gigabytes; FLOP, not tera
        assert 50e9 <= one.bandwidth <= 10e12 and 1e12 <= one.peak("float16") <= 5e15
        assert (1 if cpu else 8) <= one.ridge("float16") <= 430, name
        assert one.memory_bytes is None or (
            8e9 <= one.memory_bytes <= 200e9 and 0.01 < one.memory_bytes / one.bandwidth < 1
        )
        if "int8" in one.peak_flops and name not in ODD:  # type: ignore[operator] # a mapping in this list
            assert one.peak("float16") <= one.peak("int8") <= 2.03 * one.peak("float16"), name
    assert len({one.name for one in DEVICES.values()}) == len(DEVICES)


# desk cards multiply int8 four times as fast as half precision that accumulates in float32; V100 has no units for it
ODD = {"v100", "rtx-3060", "rtx-3080", "rtx-3090", "rtx-4060", "rtx-4080", "rtx-4090", "rtx-5080", "rtx-5090"}


def test_derived_peaks_follow_from_cores_clock_and_operations() -> None:
    fused = 2 * 8 * 2  # two units of 8 lanes, multiply and add
    assert DEVICES["epyc-9654"].peak("float32") == pytest.approx(96 * 2.4e9 * fused)
    assert (
        DEVICES["epyc-9654"].bandwidth == pytest.approx(12 * 4800e6 * 8)
        and DEVICES["xeon-8480"].bandwidth == 8 * 4800e6 * 8
    )
    assert (
        DEVICES["epyc-7763"].bandwidth == 8 * 3200e6 * 8
        and DEVICES["ryzen-7950x"].bandwidth == 2 * 5200e6 * 8
    )
    assert DEVICES["m4-max"].peak("float32") == pytest.approx(40 * 128 * 2 * 1.47e9, rel=0.01)
    assert DEVICES["rtx-3060"].peak("float16") == pytest.approx(2 * 12.74e12, rel=0.01)


def test_the_documentation_lists_every_machine_with_its_source() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "cost.md").read_text(encoding="utf-8")
    for row in device_rows(DEVICES):
        assert f"| `{row[0]}` | {' | '.join(row[1:])} |" in text, row[0]
