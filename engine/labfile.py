"""The file of a LabBench run while it goes, from which it can go on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .labresult import Result, Row
from .questions import LabBenchError


class Kept:
    """The file of a measurement: `out`.partial, one line a question under a line of settings, and in the end `out`."""

    def __init__(self, out: Path, result: Result, resume: bool):
        self.out, self.part, self.result = out, out.with_name(out.name + ".partial"), result
        check_place(out, resume)
        try:
            good = self._read() if resume else 0
            self.file = self.part.open("r+b" if resume else "xb")
            self.file.truncate(good)
            self.file.seek(good)
        except (OSError, ValueError) as error:
            if isinstance(error, LabBenchError):
                raise
            raise LabBenchError(f"{out} cannot be written: {getattr(error, 'strerror', None) or error}.") from None
        if not good:
            self._line({"settings": result.settings})

    def _read(self) -> int:
        """Take over the questions that stand in the file; how many bytes of it are whole lines."""
        lines = self.part.read_bytes().split(b"\n")[:-1]  # a line that was being written when the program ended is left out
        good = 0
        for i, line in enumerate(lines):
            try:
                said = json.loads(line)
                if i == 0:
                    self._same(said["settings"])
                else:
                    rows = [Row(**row) for row in said["rows"]]
                    self.result.add(said["question"], rows, said["skipped"], said["seconds"])
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, LabBenchError):
                    raise
                raise LabBenchError(
                    f"Line {i + 1} of {self.part} is not of a measurement: move the file away and begin anew."
                ) from None
            good += len(line) + 1
        return good

    def _same(self, settings: Mapping[str, Any]) -> None:
        """Refuse to go on under other settings."""
        mine = json.loads(json.dumps(self.result.settings))
        other = next((x for x in mine if mine[x] != settings.get(x)), None)
        if other is not None:
            raise LabBenchError(
                f"{self.part} was measured with {other} = {_short(settings.get(other))}, now it is {_short(mine[other])}: use "
                "the same settings, or another file."
            )

    def add(self, question: int | str, rows: list[Row], skipped: str, seconds: float) -> None:
        """Keep what was made of a question."""
        self._line({"question": question, "rows": [asdict(x) for x in rows], "skipped": skipped, "seconds": seconds})

    def _line(self, said: Mapping[str, Any]) -> None:
        try:
            self.file.write(json.dumps(said).encode() + b"\n")
            self.file.flush()
        except OSError as error:
            raise LabBenchError(
                f"{self.part} cannot be written ({error.strerror}): make room, then go on with --resume."
            ) from None

    def seal(self) -> None:
        """Write the whole as one object, and remove the other file."""
        made = self.out.with_name(self.out.name + ".new")
        try:
            made.write_text(json.dumps(self.result.record(), allow_nan=False) + "\n", encoding="utf-8")
            os.replace(made, self.out)
        except OSError as error:
            raise LabBenchError(
                f"{self.out} cannot be written ({error.strerror}): make room, then go on with --resume."
            ) from None
        self.close()
        self.part.unlink()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def check_place(out: Path, resume: bool) -> None:
    """Raise LabBenchError if `out` cannot be written anew, or, with `resume`, there is nothing to go on from."""
    try:
        if out.exists():
            raise LabBenchError(f"{out} exists already: choose another name, or move it away.")
        part = out.with_name(out.name + ".partial")
        if resume and not part.exists():
            raise LabBenchError(f"There is no {part} to go on from: leave --resume out.")
        if not resume and part.exists():
            raise LabBenchError(f"{part} exists already: go on with --resume, choose another name, or move it away.")
        if not out.parent.is_dir():
            raise LabBenchError(f"There is no folder {out.parent} for the result: make it first, or choose another.")
    except OSError as error:  # a name that the system does not take, a folder that may not be looked into
        raise LabBenchError(f"{str(out)[:200]} cannot be written: {error.strerror}.") from None


def _short(value: Any) -> str:
    return json.dumps(value)[:60]


def _full(path: Path, error: OSError) -> LabBenchError:
    return LabBenchError(f"{path} cannot be written ({error.strerror}): make room, then go on with --resume.")
