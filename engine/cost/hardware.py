"""Known machines by name, and measured profiles kept on disk. No torch.

`devices.py` lists the published figures; `roofline.py` turns a profile and a cost into a time; `measure.py` makes the profile
of the machine at hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from decodescope.engine.core.files import data_folder, measurement_path, write_json
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.paths import shorten_path

from .devices import DEVICES
from .roofline import ByteRule, Estimate, HardwareProfile, critical_tokens, mbu, mfu, roof, verify_curve

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


def device(name: str) -> HardwareProfile:
    """The known machine `name`, a key of DEVICES."""
    if name not in DEVICES:
        raise ParamError(
            f"No machine {shorten_path(name)!r}; known: {', '.join(DEVICES)}. Or give peak_flops and bandwidth."
        )
    return DEVICES[name]


Key = Mapping[str, str | int]


def profile_path(key: Key, data_dir: str | Path | None = None) -> Path:
    """Path of the profile measured under `key` (machine, torch, threads, dtype); the folder may not exist yet."""
    folder = (data_folder() if data_dir is None else Path(data_dir)) / "profiles"
    return measurement_path(folder, key)


def save_profile(profile: HardwareProfile, key: Key, data_dir: str | Path | None = None) -> Path:
    """Write the profile under `key`, in one piece or not at all; return where."""
    path = profile_path(key, data_dir)
    write_json(path, {"key": dict(key), "profile": profile.record()})
    return path


def load_profile(key: Key, data_dir: str | Path | None = None) -> HardwareProfile | None:
    """The profile saved under `key`, or None where there is none that can be read."""
    try:
        saved = json.loads(profile_path(key, data_dir).read_text(encoding="utf-8"))
        whole = isinstance(saved, dict) and saved.get("key") == dict(key)
        return HardwareProfile.from_record(saved.get("profile", {})) if whole else None
    except (OSError, ValueError):
        return None  # absent or damaged: it is measured again
