"""Operating system calls for a trace: a lock, a sync, a new name."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from io import FileIO
from pathlib import Path
from typing import IO


def open_partial(path: Path) -> FileIO:
    """Open `path` for writing without a buffer of our own; make it if it is missing, leave its bytes if not."""
    return FileIO(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644), "r+b")


def lock(file: IO[bytes] | FileIO) -> bool:
    """Take the advisory lock of an open file; False when another holder has it. Closing the file lets it go."""
    if sys.platform == "win32":
        import msvcrt

        at = file.tell()
        file.seek(1 << 40)  # far beyond the end: a lock there does not block readers
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            file.seek(at)
        return True
    import fcntl

    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def reserve(folder: Path, size: int) -> IO[bytes]:
    """`size` bytes of `folder`'s disk, held until the returned file is closed, or the process ends."""
    file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  # held open on purpose
    file.write(os.urandom(size))  # zeros would be no reserve on a file system that compresses
    return file


def sync_data(file: FileIO) -> None:
    """Bring the file's bytes to the disk itself."""
    getattr(os, "fdatasync", os.fsync)(file.fileno())


def publish(file: FileIO, old: Path, new: Path) -> None:
    """Sync and close `file`, rename it from `old` to `new`, and sync their folder."""
    os.fsync(file.fileno())
    if sys.platform == "win32":  # an open file cannot be renamed there
        file.close()
    os.replace(old, new)
    if sys.platform != "win32":
        folder = os.open(new.parent, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # some network file systems cannot sync a folder
                os.fsync(folder)
        finally:
            os.close(folder)


class SyncThread:
    """A thread that syncs a growing file at most every `every_s` seconds, and keeps the error if it fails."""

    def __init__(self, file: FileIO, every_s: float):
        self.error: OSError | None = None
        self.dirty = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(file, every_s), daemon=True, name="trace-sync"
        )
        self._thread.start()

    def _run(self, file: FileIO, every_s: float) -> None:
        while not self._stopped.wait(every_s):
            if self.dirty:
                self.dirty = False
                try:
                    sync_data(file)
                except OSError as error:
                    self.error = error
                    return

    def stop(self) -> None:
        """End the thread; it has let go of the file when this returns."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
