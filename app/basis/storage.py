"""Storage: the location of the user's data."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

from decodescope.engine.core import files
from decodescope.engine.core.paths import expand_path, shorten_path
from decodescope.engine.core.refusal import Refusal

STAR = ".star"  # next to a trace that is always kept: RUN.dstrace.star
UPLOAD = ".upload"  # a trace that is being uploaded: .XXXXXXXXXXXXXXXX.upload
UNCHECKED = (
    ".unchecked"  # next to a trace that was checked in part when it was added, with the sentence on it
)
NAME = ".name"  # next to a trace that its owner named: RUN.dstrace.name


def data_folder(chosen: str | Path | None = None) -> Path:
    """The folder of the user's data: the one chosen with --data, else the default. It is not created here."""
    return files.data_folder() if chosen is None else expand_path(chosen)


def ensure_writable(folder: Path) -> Path:
    """The folder; it is created if it does not exist. Raises Refusal if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, ValueError) as error:
        why = "it is a file" if folder.is_file() else getattr(error, "strerror", None) or error
        raise Refusal(
            f"Nothing can be kept in {shorten_path(str(folder))} ({why}): choose another folder with --data."
        ) from None


def traces_folder(chosen: str | Path | None = None) -> Path:
    """The folder of the recorded runs, inside the data folder."""
    return data_folder(chosen) / "traces"


def remove_stale_uploads(folder: Path, age_s: float) -> None:
    """Remove files of interrupted uploads (their program ended) that are at least `age_s` seconds old."""
    for path in folder.glob("." + "?" * 16 + UPLOAD):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime >= age_s:
                path.unlink()


def remove_old_traces(folder: Path, most: int) -> list[Path]:
    """Remove the oldest sealed traces of `folder` until the rest takes at most `most` bytes; return the removed ones.

    Starred traces stay and count. The newest trace stays too, and so do traces that are still being written.
    """
    traces = []
    for path in folder.glob("*.dstrace"):
        with contextlib.suppress(OSError):  # removed meanwhile
            state = path.stat()
            traces.append((state.st_mtime_ns, path, state.st_size))
    traces.sort()
    held, gone = sum(size for _, _, size in traces), []
    for _, path, size in traces[:-1]:
        if held <= most:
            break
        if not path.with_name(path.name + STAR).exists():
            with contextlib.suppress(OSError):  # open in a program that forbids it: removed another time
                path.unlink()
                for mark in (NAME, UNCHECKED):
                    path.with_name(path.name + mark).unlink(missing_ok=True)
                held -= size
                gone.append(path)
    return gone


class RetentionSink:
    """A sink that frees space in the folder when a run has ended. most: MiB"""

    def __init__(self, folder: Path, most: int):
        self.folder, self.most = folder, most

    def write(self, record: Any) -> None:
        """Do nothing: only the end matters."""

    def seal(self, end: Any = None) -> None:
        """Free space; the run's file is already sealed."""
        remove_old_traces(self.folder, self.most << 20)
