"""Measures the machine at hand: peak FLOP/s, bandwidth of memory and of the cache, and the price of a launch.

Roofs are the best of several timings, as in the STREAM benchmark, since a roof is what the machine can do and another program
can only take from it. `details` also has the median; a median far below the roof shows that the machine was busy. The launch
price is a median. In all about three seconds.
"""

from __future__ import annotations

import contextlib
import platform
import statistics
import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from decodescope.engine.core.progress import Progress
from decodescope.engine.cost.hardware import HardwareProfile, Key, load_profile, save_profile

MiB = 2**20
CACHE_MIB = (64, 32, 16)  # sets tried, the largest first
CACHE_GAIN = 1.25  # a set counts as resident when it is read this much faster than memory
Call = Callable[[], object]


def measure(
    dtype: torch.dtype | str, device: torch.device | str = "cpu", threads: int | None = None
) -> HardwareProfile:
    """Measure `device` in `dtype`, on the CPU with `threads` threads (None: as set). Nothing is left changed.

    The peak is that of square matrix products in `dtype`. Bandwidths are those of the fastest of a sum, a matrix-vector product
    and a copy in float32, since bytes are bytes. A launch is the mean of a tiny addition and a tiny linear. Until it returns,
    torch's thread count is `threads`, for the whole process: measure before a run, not during one.
    """
    dtype, device = _dtype(dtype), torch.device(device)
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with torch.inference_mode(), Progress("peak of products", 4, "figures") as progress:
            details: dict[str, float] = {}
            peak, details["median_peak_flops"] = _peak(dtype, device)
            progress.at(1, phase="bandwidth of memory")
            memory, details["median_bandwidth"] = _bandwidth(device, _large_mib(device), 0.3)
            progress.at(2, phase="bandwidth of the cache")
            cache = cache_mib = None
            for mib in CACHE_MIB:
                rate, _ = _bandwidth(device, mib, 0.08)
                if rate > CACHE_GAIN * memory:
                    cache, cache_mib = rate, mib
                    break
            progress.at(3, phase="price of a launch")
            launch = _launch_us(device)
            used = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    where = machine_name(device) + (
        f", {used} thread{'' if used == 1 else 's'}" if device.type == "cpu" else ""
    )
    return HardwareProfile(
        name=f"{where}, {_dtype_name(dtype)}",
        peak_flops={_dtype_name(dtype): peak},
        bandwidth=memory,
        launch_us=launch,
        source=f"measured here with torch {torch.__version__}",
        kind="measured",
        cache_bandwidth=cache,
        cache_bytes=None if cache_mib is None else cache_mib * MiB,
        details=details,
    )


def profile_here(
    dtype: torch.dtype | str,
    device: torch.device | str = "cpu",
    data_dir: str | Path | None = None,
    refresh: bool = False,
    threads: int | None = None,
) -> HardwareProfile:
    """The profile of this machine: the one kept in the data folder, or a new one, which is then kept.

    One is kept per machine, torch version, thread count and dtype, on the CPU also per set of torch's kernels (AVX2, AVX512).
    """
    key = profile_key(dtype, device, threads)
    kept = None if refresh else load_profile(key, data_dir)
    if kept is not None:
        return kept
    profile = measure(dtype, device, threads)
    with contextlib.suppress(
        OSError
    ):  # a read-only or full disk: the figures are good, next time they are made again
        save_profile(profile, key, data_dir)
    return profile


def known_measurement(dtype: torch.dtype, device: torch.device, threads: int) -> dict[str, Any] | None:
    """The earlier measurement of this machine, as a trace records it; None if there is none."""
    kept = load_profile(profile_key(dtype, device, threads))
    return None if kept is None else kept.record()


def profile_key(
    dtype: torch.dtype | str, device: torch.device | str = "cpu", threads: int | None = None
) -> Key:
    """What a kept profile is valid for."""
    device = torch.device(device)
    # a virtual machine may show a processor under the same name with and without its widest instructions
    kernels = {"kernels": torch.backends.cpu.get_cpu_capability()} if device.type == "cpu" else {}
    return {
        "machine": machine_name(device),
        **kernels,
        "torch": torch.__version__,
        "threads": (threads or torch.get_num_threads()) if device.type == "cpu" else 0,
        "dtype": _dtype_name(_dtype(dtype)),
    }


@lru_cache(maxsize=16)
def machine_name(device: torch.device) -> str:
    """The processor's or GPU's name in its maker's words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return f"{platform.machine()} {device.type}"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine() or "CPU"


def _peak(dtype: torch.dtype, device: torch.device, budget_s: float = 1.2) -> tuple[float, float]:
    """Best and median FLOP/s of square products. Sizes double while the next is expected to fit the budget."""
    best = median = 0.0
    sizes = (1024, 2048, 4096, 8192) if device.type == "cuda" else (256, 512, 1024)
    end = time.perf_counter() + budget_s
    for n in sizes:
        a = torch.ones(n, n, dtype=dtype, device=device)
        b, c = torch.ones_like(a), torch.empty_like(a)
        times = _times(partial(torch.mm, a, b, out=c), device, budget_s / len(sizes))
        if 2 * n**3 / min(times) > best:
            best, median = 2 * n**3 / min(times), 2 * n**3 / statistics.median(times)
        if (
            time.perf_counter() + 3 * 8 * min(times) > end
        ):  # a larger product does at least three, each eight times as long
            break
    return best, median


def _bandwidth(device: torch.device, mib: int, budget_s: float) -> tuple[float, float]:
    """Best and median bytes/s over sets of `mib` MiB: of the three ways to move them, the fastest by its best time."""
    source = torch.ones(mib * MiB // 4, device=device)  # written, so that every page is real
    half = source.numel() // 2
    matrix, vector = source.view(-1, 1024), torch.ones(1024, device=device)
    ways: list[Call] = [
        lambda: source.sum(),
        lambda: matrix @ vector,
        lambda: source[:half].copy_(source[half:]),  # half is read, half is written: mib MiB move
    ]
    rates = []
    for way in ways:
        times = _times(way, device, budget_s)
        rates.append((mib * MiB / min(times), mib * MiB / statistics.median(times)))
    return max(rates)


def _large_mib(device: torch.device) -> int:
    """MiB of a set that no cache holds: 256 on the CPU, 1024 on a GPU or a quarter of what is free."""
    if device.type != "cuda":
        return 256
    return max(128, min(1024, torch.cuda.mem_get_info(device)[0] // 4 // MiB))


def _launch_us(device: torch.device, calls: int = 200) -> float:
    """Microseconds that an operator costs however small it is: the call from Python, the dispatch, the launch."""
    # float32 for every dtype: the price is the call's, and some half-precision fallbacks wake all threads even for this
    x, w = torch.ones(1, 16, device=device), torch.ones(16, 16, device=device)
    tiny: list[Call] = [lambda: torch.add(x, x), lambda: F.linear(x, w)]
    each = [statistics.median(_times(call, device, 0.1, calls)) for call in tiny]
    return sum(each) / len(each) * 1e6


def _times(call: Call, device: torch.device, budget_s: float, calls: int = 1) -> list[float]:
    """Seconds per call, timed in rounds of `calls`: three rounds at least, then until the budget is spent."""
    call()  # first touch: pages, kernels, thread pool
    _synchronize(device)
    times: list[float] = []
    end = time.perf_counter() + budget_s
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 500):
        times.append(_round(call, device, calls) / calls)
    return times


def _round(call: Call, device: torch.device, calls: int) -> float:
    """Seconds of `calls` calls; on CUDA by events on the device, so that waiting for the result is not counted."""
    if device.type == "cuda":
        stream = torch.cuda.current_stream(device)
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(stream)
        for _ in range(calls):
            call()
        stop.record(stream)
        stop.synchronize()
        seconds: float = max(start.elapsed_time(stop), 1e-3) / 1e3  # ms; events resolve about a microsecond
        return seconds
    began = time.perf_counter()
    for _ in range(calls):
        call()
    _synchronize(device)
    return max(time.perf_counter() - began, 1e-9)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _dtype(dtype: torch.dtype | str) -> torch.dtype:
    known = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(known, torch.dtype) or not known.is_floating_point:
        raise ValueError(f"dtype = {dtype!r}: give a floating dtype, e.g. 'float32' or 'bfloat16'.")
    return known


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
