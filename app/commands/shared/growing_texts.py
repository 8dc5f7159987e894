"""GrowingTexts: the texts of a batch, kept in a file while the others are still being decoded."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from decodescope.engine.core.refusal import Refusal

from .output import print_note

PARTIAL = ".partial"


class GrowingTexts:
    """OUT.partial gets a line when a text ends, in the order in which they end. A program that is killed leaves it, with all
    lines whole but perhaps the last. A disk that takes no more costs a note: the texts are still in memory."""

    def __init__(self, out: Path | None):
        """Raises Refusal if the file cannot be created, before anything is decoded for it."""
        self.path = None if out is None else out.with_name(out.name + PARTIAL)
        self.lines = 0
        self._file: IO[bytes] | None = None
        if self.path is not None:
            try:
                self._file = self.path.open("xb", buffering=0)
            except OSError as error:
                raise Refusal(f"The texts cannot be written to {out}: {error.strerror}.") from None

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a text."""
        if self._file is None:
            return
        begin = self._file.tell()
        try:
            write_line(self._file, row)
            self.lines += 1
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(begin)
            self.close()
            print_note(
                f"{self.path} keeps {self.lines} texts, since no more could be written ({error.strerror}): "
                "the others are printed or written at the end."
            )

    def close(self) -> None:
        """Let go of the file, which stays if it holds anything."""
        if self._file is not None:
            self._file.close()
            self._file = None
            if self.path is not None and not self.lines:
                self.path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the file: its texts are kept elsewhere."""
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def write_line(file: IO[bytes], row: Mapping[str, Any]) -> int:
    """Write a text as a line of an unbuffered file, which may take a part of it at a time; the bytes of the line."""
    line, done = (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "replace"), 0
    while done < len(line):
        done += file.write(line[done:]) or 0
    return done
