"""Measurements: results over several runs, stored as files next to the traces, so that a link lasts as long as they do."""

from __future__ import annotations

import json
import os
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from decodescope.app.basis.refusal import RequestRefusal

NAME = re.compile(r"[0-9a-f]{16}")
MOST = 256  # records of a kind; the oldest is deleted


class RecordFolder:
    """Records of one kind, each under its id of 16 hexadecimal digits, in `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder

    def write(self, name: str, record: dict[str, Any]) -> None:
        """Store a record and replace the one of that name; the oldest record above MOST is deleted. Raises OSError."""
        assert NAME.fullmatch(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f"{name}.part"
        fresh.write_text(json.dumps(record, allow_nan=False), encoding="utf-8")
        os.replace(fresh, self.folder / f"{name}.json")
        for old in sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[:-MOST]:
            old.unlink(missing_ok=True)

    def read(self, name: str) -> dict[str, Any] | None:
        """The record of that name; None if there is none that can be read."""
        if not NAME.fullmatch(name):
            return None
        try:
            record = json.loads((self.folder / f"{name}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def names(self) -> list[str]:
        """The names of the records."""
        return [path.stem for path in self.folder.glob("*.json") if NAME.fullmatch(path.stem)]


class Measurement(Protocol):
    """Work over several runs with a stored result."""

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        ...

    def record(self) -> dict[str, Any]:
        """The results so far, as plain data."""
        ...

    def stop(self) -> None:
        """End it; the results so far stay."""
        ...


One = TypeVar("One", bound=Measurement)


class Measurements(Generic[One]):
    """Works of one kind, by id.
    Active or recently ended works are in memory, about `most` of them; earlier ones are read as they were stored."""

    def __init__(self, kept: RecordFolder, most: int):
        self.kept = kept
        self._most, self._known = most, OrderedDict[str, One]()

    def add(self, name: str, work: One) -> One:
        """Remember a work."""
        self._known[name] = work
        for old in list(self._known)[: -self._most]:
            if self._known[old].over:
                del self._known[old]
        return work

    def record(self, name: str) -> dict[str, Any] | None:
        """The results of the work with that id so far; None if it is not here.
        If its server ended meanwhile, the stored results are returned as stopped."""
        if name in self._known:
            return self._known[name].record()
        record = self.kept.read(name)
        return record and {**record, **({} if record.get("over") else {"over": True, "stopped": True})}

    def require(self, name: str, gone: str) -> dict[str, Any]:
        """The record of the work of that id. Raises RequestRefusal with the words `gone` if it is not here."""
        record = self.record(name)
        if record is None:
            raise RequestRefusal(gone)
        return record

    def stop(self, name: str) -> None:
        """End the work of that id, if it is active."""
        if name in self._known:
            self._known[name].stop()

    def records(self) -> list[dict[str, Any]]:
        """All of them."""
        names = dict.fromkeys([*self._known, *self.kept.names()])
        return [record for name in names if (record := self.record(name)) is not None]
