"""Pass curve: the measured time of a forward pass by its number of rows, and the files that keep it. No torch.

The curve is measured by `engine/decoding/shared/verify_cost.py`. Tree sizes, draft lengths, the report, the views and the
page's remark read it from here.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from decodescope.engine.core.files import data_folder, measurement_path, write_json

ROWS = (1, 2, 4, 8, 16, 32)  # measured when nobody asks for other numbers
MOST = 4096  # rows of a pass that a file or a header may name

Key = Mapping[str, str | int]


@dataclass(frozen=True)
class PassCurve:
    """Measured pass times. us: rows of a pass -> microseconds, at least one entry."""

    us: Mapping[int, float]

    @cached_property
    def rows(self) -> list[int]:
        """The measured numbers of rows, ascending."""
        return sorted(self.us)

    def time_us(self, rows: float) -> float:
        """Microseconds of a pass over `rows` rows: as measured, or on the line between the two nearest measured numbers.

        Above the largest one the last line goes on, but never downwards. Below the smallest one its time is returned.
        """
        known = self.rows
        if rows in self.us:
            return self.us[int(rows)]
        if rows <= known[0] or len(known) == 1:
            return self.us[known[0]]
        at = min(bisect_left(known, rows), len(known) - 1)
        low, high = known[at - 1], known[at]
        slope = (self.us[high] - self.us[low]) / (high - low)
        if rows > high:
            return self.us[high] + max(slope, 0.0) * (rows - high)
        return self.us[low] + slope * (rows - low)

    def covers(self, rows: float) -> bool:
        """Whether the curve can say what `rows` rows cost: it has several points, and the last is not far below."""
        return len(self.us) > 1 and rows <= 2 * self.rows[-1]

    def ratio(self, rows: float) -> float:
        """The time of a pass over `rows` rows, in passes over one row; at least 1, since less is noise of the clock."""
        return max(1.0, self.time_us(rows) / self.time_us(1))

    def merge(self, us: Mapping[int, float]) -> PassCurve:
        """The same curve with further points; where both have one, the given one counts."""
        return PassCurve({**self.us, **us})

    def record(self) -> dict[str, float]:
        """As plain data: rows as text -> microseconds, ascending."""
        return {str(n): round(self.us[n], 1) for n in self.rows}

    @classmethod
    def from_record(cls, record: Any) -> PassCurve | None:
        """The curve that `record()` described; None for anything else, such as an empty or damaged one."""
        if not isinstance(record, Mapping) or not record:
            return None
        us = {}
        for rows, time in record.items():
            whole = isinstance(rows, str) and rows.isascii() and rows.isdigit() and len(rows) < 6
            if not whole or isinstance(time, bool) or not isinstance(time, int | float):
                return None
            if not (1 <= int(rows) <= MOST and math.isfinite(time) and time > 0):
                return None
            us[int(rows)] = float(time)
        return cls(us)


def recorded_curve(pass_us: Any, role: str) -> PassCurve | None:
    """The curve of the model in a role, of what the header of a trace keeps; None if there is none of several points."""
    curve = PassCurve.from_record(pass_us.get(role)) if isinstance(pass_us, Mapping) else None
    return curve if curve is not None and len(curve.us) > 1 else None


def curve_path(key: Key, data_dir: str | Path | None = None) -> Path:
    """The file of the curve that was measured under `key`; it may not exist yet."""
    folder = (data_folder() if data_dir is None else Path(data_dir)) / "passes"
    return measurement_path(folder, key)


def save_curve(curve: PassCurve, key: Key, data_dir: str | Path | None = None) -> None:
    """Keep the curve under `key`, in one piece or not at all. Raises OSError."""
    write_json(curve_path(key, data_dir), {"key": dict(key), "us": curve.record()})


def load_curve(key: Key, data_dir: str | Path | None = None) -> PassCurve | None:
    """The curve that was kept under `key`; None if there is none that can be read."""
    try:
        saved = json.loads(curve_path(key, data_dir).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # absent or damaged: it is measured again
    if not isinstance(saved, dict) or saved.get("key") != dict(key):
        return None
    return PassCurve.from_record(saved.get("us"))
