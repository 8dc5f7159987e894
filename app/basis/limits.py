"""Limits: the machine resources that the lab may use. Each is an option of `decodescope app`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

SEEDS = (1 << 53) - 1  # the largest seed; larger numbers are not exact in every reader of a trace


def _limit(usual: int, low: int, high: int, unit: str, help: str) -> Any:
    return field(default=usual, metadata={"low": low, "high": high, "unit": unit, "help": help})


@dataclass(frozen=True)
class LabLimits:
    """The limits that can be chosen when the lab is started; a refusal caused by a limit names its option, `--NAME`."""

    queue: int = _limit(16, 1, 1000, "RUNS", "runs that may wait while one is going")
    minutes: int = _limit(
        10, 1, 1440, "MIN", "minutes that a run may compute; then it is ended, and its steps are kept"
    )
    upload: int = _limit(
        64, 8, 1024, "MIB", "size of a trace that is brought to the page, and of any request"
    )
    free: int = _limit(
        1024, 64, 1 << 20, "MIB", "room that must be left on the disk before a run begins or a trace is taken"
    )
    keep: int = _limit(2048, 64, 1 << 20, "MIB", "size of all traces; above it the oldest without a star go")
    hours: int = _limit(24, 1, 8760, "H", "age at which what is left of an interrupted upload goes")

    def rows(self) -> list[dict[str, Any]]:
        """Every limit as plain data: option, value, usual value, lowest, highest, unit and meaning."""
        return [
            {"option": f"--{x.name}", "value": getattr(self, x.name), "usual": x.default, **x.metadata}
            for x in fields(self)
        ]
