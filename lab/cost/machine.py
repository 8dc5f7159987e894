"""Machine: what a view draws of a machine's figures."""

from __future__ import annotations

from typing import Any

from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.hardware import HardwareProfile


def machine_of(profile: HardwareProfile, dtype: str) -> dict[str, Any] | None:
    """The machine fields for runs in `dtype`: name, FLOP/s, bytes/s. None: its peak is not known for that type."""
    try:
        peak = profile.peak(dtype)
    except ParamError:
        return None
    return {
        "name": str(profile.name)[:80],
        "kind": profile.kind,
        "source": profile.source,
        "peak": peak,
        "bandwidth": profile.bandwidth,
        "cache_bandwidth": profile.cache_bandwidth,
        "cache_bytes": profile.cache_bytes,
    }
