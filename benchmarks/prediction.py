"""How far a run's time, predicted from its trace, is off, in one and in two threads: `python benchmarks/prediction.py`.

In each number of threads the machine is measured and each method decodes the same prompt. Every trace is then priced on every
profile: on its own, which is what the page says ("the model is off by ..."), and on the other's, by the model alone and by the
model's ratio, that is the time measured in the one number of threads times model there over model here.
"""

from __future__ import annotations

import argparse
import statistics

import torch

from decodescope.engine import load, run
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.timing.measure import measure
from decodescope.engine.trace import Trace
from decodescope.lab.cost.pricer import CostDeviation, PricedRun, Pricer, cost_deviation

METHODS = ("none", "prompt_lookup", "draft_model")  # drafters
TEXT = (
    "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n    return "
)


def error(trace: Trace, profile: HardwareProfile) -> CostDeviation:
    """Of all passes of a trace, on that machine."""
    far = cost_deviation(Pricer(PricedRun(trace.header, trace.prefill, trace.steps), profile).rows())
    assert far is not None
    return far


def recorded(dtype: str, threads: list[int], tokens: int, repeats: int) -> dict[tuple[str, int], list[Trace]]:
    """The traces of every method in every number of threads; the numbers take turns."""
    target, draft = (load(name, dtype=dtype) for name in ("lab", "lab-draft"))
    traces: dict[tuple[str, int], list[Trace]] = {(method, n): [] for method in METHODS for n in threads}
    for turn in range(repeats + 1):
        for method, n in traces:
            torch.set_num_threads(n)
            made = run(target, method, TEXT, draft=draft, max_new_tokens=tokens, ignore_eos=True)
            if turn:  # the first warms up
                traces[method, n].append(made.trace)
    return traces


def main() -> None:
    """Print a row for each method and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs=2, default=(1, 2))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", nargs="*", default=("float32", "bfloat16"))
    args = parser.parse_args()
    for dtype in args.dtype:
        profiles = {n: measure(dtype, "cpu", n) for n in args.threads}
        for n, p in profiles.items():
            cache = "" if p.cache_bandwidth is None else f", cache {p.cache_bandwidth / 1e9:.0f}"
            peak, memory = p.peak() / 1e9, p.bandwidth / 1e9
            print(
                f"{dtype}, {n}: {peak:.0f} GFLOP/s, memory {memory:.1f} GB/s{cache}, launch {p.launch_us:.1f} us"
            )
        print(
            "| type | method | threads | clock, ms | own profile | the other's profile | from the other's clock |"
        )
        print("|---|---|---|---|---|---|---|")
        for (method, n), traces in (kept := recorded(dtype, args.threads, args.tokens, args.repeats)).items():
            (other,) = set(args.threads) - {n}
            own, across, clock = (
                statistics.median(values)
                for values in (
                    [error(x, profiles[n]).share for x in traces],
                    [error(x, profiles[other]).share for x in traces],
                    [error(x, profiles[n]).clock for x in traces],
                )
            )
            there = [error(x, profiles[other]) for x in kept[method, other]]
            scaled = statistics.median(x.clock / x.model for x in there) * error(traces[0], profiles[n]).model
            figures = " | ".join(f"{100 * x:+.0f} %" for x in (own, across, scaled / clock - 1))
            print(f"| {dtype} | {method} | {n} | {1e3 * clock:.0f} | {figures} |")


if __name__ == "__main__":
    main()
