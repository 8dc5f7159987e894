"""Kept: what was measured over several runs, as files beside the traces, so that a link to it lasts as long as they do."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

NAME = re.compile(r"[0-9a-f]{16}")
MOST = 256  # of a kind; the oldest goes


class Kept:
    """Records of one kind, each under its id of 16 hexadecimal digits, in `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder

    def write(self, name: str, record: dict[str, Any]) -> None:
        """Keep a record, in the place of the one of that name; the oldest above MOST goes. Raises OSError."""
        assert NAME.fullmatch(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f"{name}.part"
        fresh.write_text(json.dumps(record, allow_nan=False), encoding="utf-8")
        os.replace(fresh, self.folder / f"{name}.json")
        for old in sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[:-MOST]:
            old.unlink(missing_ok=True)

    def read(self, name: str) -> dict[str, Any] | None:
        """The record of that name; None where there is none that can be read."""
        if not NAME.fullmatch(name):
            return None
        try:
            record = json.loads((self.folder / f"{name}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None
