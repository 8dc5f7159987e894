"""Time passes of some rows, and a prompt, with both kernels: the tables of docs/kernels.md.

    python benchmarks/kernels.py lab PATH/OF/A/MODEL --dtype bfloat16 float32
    python benchmarks/kernels.py lab --weights "" int8 int4          # matrices of few bits

A line holds milliseconds, the fastest of `--rounds` passes over 200 tokens in the cache. The kernels take turns. What a
processor without AVX-512 does is seen with ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 NUMBA_CPU_NAME=haswell and
NUMBA_CPU_FEATURES="$(python benchmarks/kernels.py --features)", as far as that goes.
"""

from __future__ import annotations

import argparse
import time

import torch

from decodescope.engine import load
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.decoding.shared.verify_cost import pass_us
from decodescope.engine.kernels.choice import NAMES, OneThreadForTorch, kernels_set_to, set_pass_threads
from decodescope.engine.session.load import Model

ROWS = (1, 2, 4, 8, 16)
HELD, PROMPT = 200, 512  # tokens


def features_without_avx512() -> str:
    """The features of this processor as LLVM writes them, without AVX-512."""
    import llvmlite.binding as llvm

    held = llvm.get_host_cpu_features().flatten().split(",")
    return ",".join(x for x in held if "avx512" not in x)


def fastest_ms(model: Model, kernels: str, rounds: int) -> list[float]:
    """Milliseconds of a pass of each number of ROWS, and of a prompt."""
    decoder = model.decoder
    with kernels_set_to(kernels), torch.inference_mode(), OneThreadForTorch(decoder.dtype, decoder.device):
        lane = Lane("timed", decoder, CachePolicy())
        lane.read([5] * HELD)
        passes = [min(pass_us(lane, rows) for _ in range(rounds)) / 1e3 for rows in ROWS]
        prompts = []
        for _ in range(max(2, rounds // 5)):
            lane = Lane("timed", decoder, CachePolicy())
            began = time.perf_counter()
            lane.read([5] * PROMPT)
            prompts.append((time.perf_counter() - began) * 1e3)
    return [*passes, min(prompts)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=["lab"])
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--weights", nargs="+", default=[""], help="transforms that make the model")
    parser.add_argument("--kernels", nargs="+", default=list(NAMES))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turns", type=int, default=2, help="how often the kernels take turns")
    parser.add_argument(
        "--features", action="store_true", help="print the processor's features without AVX-512"
    )
    args = parser.parse_args()
    if args.features:
        print(features_without_avx512())
        return
    set_pass_threads(args.threads)
    print("| model | type | weights | kernels |", *(f"{rows} |" for rows in ROWS), f"prompt of {PROMPT} |")
    print("|---" * (5 + len(ROWS)) + "|")
    for name in args.models:
        for dtype in args.dtype:
            for weights in args.weights:
                models = {}
                for kernels in args.kernels:
                    with kernels_set_to(kernels):
                        models[kernels] = load(name, dtype, "cpu", weights=weights)
                taken = [
                    {k: fastest_ms(m, k, args.rounds) for k, m in models.items()} for _ in range(args.turns)
                ]
                for kernels in args.kernels:
                    best = [min(figures) for figures in zip(*(turn[kernels] for turn in taken), strict=True)]
                    print(
                        f"| {models[kernels].name} | {dtype} | {weights} | {kernels} |",
                        *(f"{x:.2f} |" for x in best),
                        flush=True,
                    )


if __name__ == "__main__":
    main()
