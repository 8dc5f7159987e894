"""The command `hardware`: the measured properties of this machine."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from decodescope.engine.cost.pass_curve import ROWS, PassCurve

from .shared.output import print_json, print_note, table

PROFILED = ("float32", "bfloat16")


def hardware(args: argparse.Namespace) -> int:
    """Print the measured properties of this machine; it is measured now if it was not before."""
    from decodescope.app.basis.storage import data_folder, ensure_writable
    from decodescope.engine.cost.hardware import DEVICES
    from decodescope.engine.model.layers.devices import device_named
    from decodescope.engine.timing.measure import profile_here

    place = device_named(args.device)
    kept = data_folder() if args.data is None else ensure_writable(data_folder(args.data))
    if not args.json:
        print_note("Measuring this machine where that was not done before; this takes some seconds.")
    profiles = [profile_here(dtype, place, kept, args.refresh) for dtype in PROFILED]
    curves = [measure_passes(args.model, dtype, str(place), kept, args.refresh) for dtype in PROFILED]
    here = {dtype: profile.record() for dtype, profile in zip(PROFILED, profiles, strict=True)}
    if args.json:
        known = {name: profile.record() for name, profile in DEVICES.items()}
        passes = {"model": args.model} | {x.dtype: x.record() for x in curves}
        print_json({"here": here, "passes": passes, "known": known})
        return 0
    rows = [
        [
            p.name,
            f"{p.peak(dtype) / 1e9:,.0f}",
            f"{p.bandwidth / 1e9:.1f}",
            cache_bandwidth_text(p),
            f"{p.launch_us:.1f}",
        ]
        for dtype, p in zip(PROFILED, profiles, strict=True)
    ]
    print(table(("machine", "GFLOP/s", "memory GB/s", "cache GB/s", "launch us"), rows))
    print(f"\n{_curve_heading(args.model, curves)}\n")
    print(table(("type", *(f"{n} row{'s' * (n > 1)}" for n in ROWS)), [curve_row(x) for x in curves]))
    print("\nAlso known, from published figures:\n")
    print(
        table(
            ("name", "machine", "memory GB", "GB/s", "TFLOP/s, half", "FLOP/byte", "figures"),
            device_rows(DEVICES),
        )
    )
    return 0


class MeasuredPasses(NamedTuple):
    """The curve of a model's passes in one type, and how they ran."""

    dtype: str
    kernels: str
    threads: int
    curve: PassCurve

    def record(self) -> dict[str, Any]:
        """As plain data; `times` are in passes over one row."""
        times = {str(n): round(self.curve.ratio(n), 3) for n in self.curve.rows}
        return {"kernels": self.kernels, "threads": self.threads, "us": self.curve.record(), "times": times}


def measure_passes(
    model: str, dtype: str, device: str, data_dir: Path | None, refresh: bool
) -> MeasuredPasses:
    """The curve of a model's passes in this type, in as many threads as a run would take; measured now if it is not kept."""
    from decodescope.engine.decoding.shared.thread_count import ThreadCount
    from decodescope.engine.decoding.shared.verify_cost import measure_curve
    from decodescope.engine.kernels.choice import kernels_in_use
    from decodescope.engine.session.load import load

    decoder = load(model, dtype, device).decoder
    threads = ThreadCount()
    threads.choose(decoder)
    kernels = kernels_in_use(decoder.dtype, decoder.device)
    return MeasuredPasses(
        dtype, kernels, threads.number, measure_curve(decoder, data_dir=data_dir, refresh=refresh)
    )


def _curve_heading(model: str, curves: Sequence[MeasuredPasses]) -> str:
    """What the table of passes shows, in words."""
    how = "; ".join(
        f"{x.dtype}: kernels {x.kernels}, {x.threads} thread{'' if x.threads == 1 else 's'}" for x in curves
    )
    return f"A pass of {model} by its rows, in milliseconds and in passes over one row ({how}):"


def curve_row(passes: MeasuredPasses) -> list[str]:
    """The type, and of each number of rows the time of a pass and how many passes over one row that is."""
    curve = passes.curve
    cells = [
        f"{curve.us[n] / 1e3:.2f} ({curve.ratio(n):.2f})" if n in curve.us else "not timed" for n in ROWS
    ]
    return [passes.dtype, *cells]


def device_rows(devices: Mapping[str, Any]) -> list[list[str]]:
    """A row for each device: its name, sizes and speeds, and their source."""
    return [
        [
            key,
            p.name,
            "-" if p.memory_bytes is None else f"{p.memory_bytes / 1e9:g}",
            f"{p.bandwidth / 1e9:g}",
            f"{p.peak('float16') / 1e12:.4g}",
            f"{p.ridge('float16'):.0f}",
            f"{p.kind}: {p.source}",
        ]
        for key, p in devices.items()
    ]


def cache_bandwidth_text(profile: Any) -> str:
    """The bandwidth of the processor's cache in GB/s, or a dash."""
    return "-" if profile.cache_bandwidth is None else f"{profile.cache_bandwidth / 1e9:.1f}"
