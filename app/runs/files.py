"""Files: visitors' uploads for knobs that take a file, stored under their hashes; no other file is opened for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.engine.core import files
from decodescope.engine.core.params import Param

if TYPE_CHECKING:
    from decodescope.engine.core.component import Component

HELD = 256 << 20  # bytes of all files; above it the oldest are removed


class UploadedFiles:
    """The files of a folder, which is created with the first file."""

    def __init__(self, folder: Path):
        self.folder = folder

    def take(self, text: bytes, name: str, most: int) -> str:
        """Store these bytes and return NAME@HASH, a valid knob value from now on. Raises FileRefusal, OSError."""
        taken = files.store_file(text, name, self.folder, most)
        self._remove_old_files()
        return taken

    def admit(self, parts: Iterable[Component]) -> None:
        """Raise RequestRefusal if a part names a file that was not uploaded here."""
        for part in parts:
            for knob, value in part.file_knobs().items():
                digest = files.hash_of(value)
                if digest is None:
                    raise RequestRefusal(
                        f"{part.name}.{knob} names a file of this machine, and the page opens none: upload the file, leave it "
                        "empty, or use the command line or Python."
                    )
                if not (self.folder / digest).is_file():
                    raise RequestRefusal(
                        f"{part.name}.{knob} = {value}: this file is not here; upload it again, or leave it empty."
                    )
                files.KNOWN[digest] = self.folder / digest

    def _remove_old_files(self) -> None:
        """Remove the oldest files until the rest takes at most HELD bytes."""
        there = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):  # removed meanwhile
                there.append((path.stat().st_mtime_ns, path, path.stat().st_size))
        held = sum(size for _, _, size in there)
        for _, path, size in sorted(there)[:-1]:
            if held <= HELD:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                held -= size


def find_file_knob(kind: str, name: str, knob: str) -> Param:
    """The declaration of a knob that takes a file. Raises RequestRefusal if there is none with these names."""
    from decodescope.engine.core.component import KINDS, registry

    shelf = registry(kind) if kind in KINDS else {}
    knobs = [x for x in shelf[name].params() if x.name == knob and x.file] if name in shelf else []
    if not knobs:
        raise RequestRefusal(
            "A file is taken for a knob that reads one: choose the part on the page, and its file there."
        )
    return knobs[0]
