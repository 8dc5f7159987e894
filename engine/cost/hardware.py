"""Known machines: peak FLOP/s and bandwidth as published, and measured profiles kept on disk. No torch.

`roofline.py` turns a profile and a cost into a time; `measure.py` makes the profile of the machine at hand.

Peaks are dense (a sheet's sparse figure halved). "carried over" is LLM-Viewer's table, hardwares/hardware_params.py,
unedited; where a maker's sheet says otherwise it stands beside it as an entry of its own, kind "vendor". No bandwidth
of a cache is listed: LLM-Viewer's on-chip buffers are the register files, which never hold weights.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from decodescope.engine.core.params import ParamError

from .roofline import ByteRule, Estimate, HardwareProfile, Kind, critical_tokens, mbu, mfu, roof, verify_curve

__all__ = [
    "DEVICES",
    "ByteRule",
    "Estimate",
    "HardwareProfile",
    "critical_tokens",
    "device",
    "load_profile",
    "mbu",
    "mfu",
    "profile_path",
    "roof",
    "save_profile",
    "verify_curve",
]

_VIEWER = "LLM-Viewer, hardwares/hardware_params.py"
_SHEET = "NVIDIA H100 data sheet, dense (sparse / 2)"


def _device(
    name: str, gb_s: float, fp16: float, int8: float | None, kind: Kind = "carried over", source: str = _VIEWER
) -> HardwareProfile:
    """GB/s and TFLOP/s to bytes/s and FLOP/s."""
    peaks = {"float16": fp16 * 1e12} | ({} if int8 is None else {"int8": int8 * 1e12})
    return HardwareProfile(name, peaks, gb_s * 1e9, source=source, kind=kind)


DEVICES: dict[str, HardwareProfile] = {
    "v100": _device("V100", 900, 112, 62),
    "a6000": _device("A6000", 768, 309.677 / 2, 309.7),
    "a100-40g": _device("A100 40 GB", 1555, 312, 624),
    "a100-80g": _device("A100 80 GB, A800 80 GB SXM", 2039, 312, 624),
    "a40": _device("A40", 696, 149.7, 299.3),
    "h100-sxm": _device("H100 SXM", 3072, 1979 / 2, 1979),
    "h100-sxm-vendor": _device("H100 SXM (data sheet)", 3350, 1979 / 2, 1979, "vendor", _SHEET),
    "h100-pcie": _device("H100 PCIe", 2048, 1513 / 2, 1513),
    "l40": _device("L40", 864, 181, 362),
    "i9-13900k": _device(
        "Core i9-13900K", 89.6, 1.3824, None, source=_VIEWER + ": 8 cores x 5.4 GHz x 32, which assumes AVX-512"
    ),
}


def device(name: str) -> HardwareProfile:
    """The known machine `name`, a key of DEVICES."""
    if name not in DEVICES:
        raise ParamError(f"No machine {name!r}; known: {', '.join(DEVICES)}. Or give peak_flops and bandwidth.")
    return DEVICES[name]


Key = Mapping[str, str | int]


def profile_path(key: Key, data_dir: str | Path | None = None) -> Path:
    """Where the profile measured under `key` (machine, torch, threads, dtype) lies; the folder may not exist yet."""
    folder = Path(platformdirs.user_data_dir("decodescope") if data_dir is None else data_dir) / "profiles"
    words = "-".join(str(part) for part in key.values()).lower()
    return folder / (re.sub(r"[^a-z0-9.]+", "-", words).strip("-") + ".json")


def save_profile(profile: HardwareProfile, key: Key, data_dir: str | Path | None = None) -> Path:
    """Write the profile under `key`, in one piece or not at all; return where."""
    path = profile_path(key, data_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({"key": dict(key), "profile": profile.record()}, file, indent=1)
    os.replace(part, path)
    return path


def load_profile(key: Key, data_dir: str | Path | None = None) -> HardwareProfile | None:
    """The profile saved under `key`, or None where there is none that can be read."""
    try:
        saved = json.loads(profile_path(key, data_dir).read_text(encoding="utf-8"))
        whole = isinstance(saved, dict) and saved.get("key") == dict(key)
        return HardwareProfile.from_record(saved.get("profile")) if whole else None
    except (OSError, ValueError):
        return None  # absent or damaged: it is measured again
