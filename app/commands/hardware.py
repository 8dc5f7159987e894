"""The command `hardware`: the measured properties of this machine."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

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
    here = {dtype: profile.record() for dtype, profile in zip(PROFILED, profiles, strict=True)}
    if args.json:
        print_json({"here": here, "known": {name: profile.record() for name, profile in DEVICES.items()}})
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
    print("\nAlso known, from published figures:\n")
    print(
        table(
            ("name", "machine", "memory GB", "GB/s", "TFLOP/s, half", "FLOP/byte", "figures"),
            device_rows(DEVICES),
        )
    )
    return 0


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
