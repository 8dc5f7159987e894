"""Instructions: the processor's instructions that torch uses, and the time of products of few rows with them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from decodescope.engine.model.layers.matrix import linear, pack

X86 = ("x86_64", "amd64", "i386", "i686")
# instructions that multiply bfloat16 numbers: by what torch calls them, as people write them
BFLOAT16 = {
    "amx_bf16": "AMX",
    "amx_tile": "AMX",  # torch 2.9 names no more of it
    "avx512_bf16": "AVX512_BF16",
    "avx10_2": "AVX10.2",
    "sve_bf16": "SVE BF16",
    "bf16": "Arm BF16",
}
LIMITS = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
)  # variables that forbid instructions
ROWS = (1, 8)  # of the products that are timed: plain decoding, and a check of seven drafted tokens
SIDE = 1024  # of the matrix
ROUNDS, BUDGET_S = 15, 0.1  # of each product


class Instructions(NamedTuple):
    """The instructions that the processor offers, and those that torch uses."""

    architecture: str  # x86_64, arm64, ...
    kernels: str  # the set of kernels that torch runs: DEFAULT, AVX2, AVX512, SVE256, ...
    avx512: bool | None  # whether the processor has it; None: unknown, or no processor of that family
    bfloat16: tuple[str, ...] | None  # what multiplies bfloat16 numbers in hardware; None: torch does not say
    limits: tuple[str, ...] = ()  # variables of the environment that forbid some, NAME=value


def read_instructions() -> Instructions:
    """Those of this machine."""
    flags = _flags()
    architecture = str(flags.get("architecture") or platform.machine()).lower()
    family = [name for name in BFLOAT16 if name in flags]
    return Instructions(
        architecture,
        torch.backends.cpu.get_cpu_capability(),
        flags.get("avx512_f") if architecture in X86 else None,
        tuple(dict.fromkeys(BFLOAT16[name] for name in family if flags[name])) if family else None,
        tuple(f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name)),
    )


def _flags() -> Mapping[str, Any]:
    """Torch's report on the processor, by its names; unknown entries are missing."""
    if hasattr(torch.cpu, "get_capabilities"):
        return torch.cpu.get_capabilities()
    if (
        platform.machine().lower() not in X86
    ):  # before there was that list torch asked about processors of this family alone
        return {}
    asked = {"avx512_f": "avx512", "avx512_bf16": "avx512_bf16", "amx_tile": "amx_tile"}
    looks = {name: getattr(torch.cpu, f"_is_{word}_supported", None) for name, word in asked.items()}
    return {name: bool(look()) for name, look in looks.items() if look is not None}


@torch.inference_mode()
def row_us(dtype: torch.dtype) -> dict[int, float]:
    """By number of rows, microseconds of a product with a matrix [1024, 1024] in `dtype` on the CPU, in one thread.

    It is the best of a few times, less than a quarter of a second in all.
    """
    weight = pack(torch.ones(SIDE, SIDE, dtype=dtype, device="cpu"))
    before, best = torch.get_num_threads(), {}
    torch.set_num_threads(1)
    try:
        for rows in ROWS:
            x, times = torch.ones(rows, SIDE, dtype=dtype, device="cpu"), list[float]()
            while len(times) < ROUNDS and sum(times) < BUDGET_S:
                began = time.perf_counter()
                linear(x, weight)
                times.append(time.perf_counter() - began)
            best[rows] = 1e6 * min(times)
    finally:
        torch.set_num_threads(before)
    return best
