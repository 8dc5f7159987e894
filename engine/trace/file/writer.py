"""TraceWriter: a run's records, appended to a file so that none is lost."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import IO, Any

from ..encoding import disk
from ..encoding.content import ContentHash
from ..encoding.frame import MAGIC, encode, frame_body
from ..records.events import End, Header, Record
from ..values.limits import MIB, StorageFull, TraceError

SUFFIX = ".dstrace"
PARTIAL = ".partial"
RESERVE_BYTES = MIB


class TraceWriter:
    """Appends records to PATH.partial; `seal` adds the end record and gives the file its name.

    When `write` returns, the record has left the process: a kill does not lose it. At least every `sync_every_s`
    seconds a thread brings what was written to the disk itself, so a power cut loses no more than that. While the file
    is open it holds a lock, and a spare 1 MiB so that a full disk can itself be recorded. A file that is removed meanwhile is
    noticed at the next record. Sealing reads the file once more, for its hashes.
    """

    def __init__(
        self, path: str | Path, header: Header, *, sync_every_s: float = 1.0, overwrite: bool = False
    ):
        self.path = Path(path)
        self.partial = self.path.with_name(self.path.name + PARTIAL)
        self._overwrite = overwrite
        self._done = (0, 0)  # bytes and records that were written whole; changed in one assignment
        self._full: StorageFull | None = None
        self._closed = True
        for taken in () if overwrite else (self.path, self.partial):
            if taken.exists():
                raise TraceError(f"{taken} exists already: choose another name, or ask to overwrite it.")
        with self._storage_errors():
            self._file: FileIO = disk.open_partial(self.partial)
        if not disk.lock(self._file):
            self._file.close()
            raise TraceError(f"{self.partial} is being written by another run: choose another name.")
        self._reserve: IO[bytes] | None = None
        try:
            with self._storage_errors():
                self._file.truncate(0)
                self._reserve = disk.reserve(self.path.parent, RESERVE_BYTES)
                self._put(MAGIC + frame_body(encode(header, 0)))
            self._syncing = disk.SyncThread(self._file, sync_every_s)
            self._closed = False
        except BaseException:
            self._give_back_reserve()
            self._file.close()
            with contextlib.suppress(OSError):
                self.partial.unlink()  # it never began
            raise

    @property
    def records(self) -> int:
        """Records written so far, the header included."""
        return self._done[1]

    def write(self, record: Record) -> None:
        """Append one record. Raises StorageFull when the disk takes no more; then only `seal` is possible."""
        if self._closed:
            raise TraceError(f"{self.path} is sealed or closed: nothing can be added to it.")
        if self._full is not None:
            raise self._full
        data = frame_body(encode(record, self._done[1]))
        try:
            if self._syncing.error is not None:
                raise self._syncing.error
            self._check_present()
            self._put(data)
        except OSError as error:
            raise self._no_room(error) from error
        self._syncing.dirty = True

    def seal(self, end: End | None = None) -> Path:
        """Write the end record, bring everything to the disk and give the file its name. Returns the path.

        Fills in `records`, `sha256` and `content_hash`. Without `end`: reason "interrupted", the tokens of the steps.
        """
        if self._closed:
            raise TraceError(f"{self.path} is sealed or closed already.")
        self._syncing.stop()
        self._give_back_reserve()
        try:
            with self._storage_errors():
                self._check_present()
                end = complete_end_record(self._bodies(), end)
                self._put(frame_body(encode(end, self._done[1])))
                if self.path.exists() and not self._overwrite:
                    raise TraceError(
                        f"{self.path} has appeared meanwhile: move it away and recover {self.partial}."
                    )
                disk.publish(self._file, self.partial, self.path)
        finally:
            self.close()
        return self.path

    def close(self) -> None:
        """Let go of the file. What was not sealed stays as PATH.partial, for `recover`."""
        if not self._closed:
            self._closed = True
            self._syncing.stop()
            self._give_back_reserve()
            self._file.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()

    def _put(self, data: bytes) -> None:
        """Append all of `data`, one record, or leave the file as it was."""
        size, records = self._done
        if self._file.tell() != size:  # an interrupt struck between writing and counting
            self._truncate(size)
        try:
            written = self._file.write(data)
            while written < len(data):
                written += self._file.write(data[written:])
        except OSError:
            with contextlib.suppress(OSError):
                self._truncate(size)
            raise
        self._done = (size + len(data), records + 1)

    def _truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._file.seek(size)

    @contextlib.contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._no_room(error) from error

    def _check_present(self) -> None:
        """Raise FileNotFoundError if the open file has no name any more: what is written to it is read by nobody."""
        if os.fstat(self._file.fileno()).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    def _no_room(self, error: OSError) -> StorageFull:
        """The sentence for a write that failed: what is kept, and what is not."""
        why = error.strerror or error
        if self.records and not self.partial.exists() and not self.path.exists():
            self._full = StorageFull(
                f"{self.partial} was removed or moved away while the run was recorded ({why}): its {self.records} records are "
                "not kept there; choose a folder that stays."
            )
        else:
            kept = "what was recorded before is kept; " if self.records else ""
            self._full = StorageFull(
                f"{self.path} could not be written ({why}): {kept}make room or choose another folder."
            )
        return self._full

    def _bodies(self) -> Iterator[bytes]:
        """The bodies written so far, read back from the file."""
        with open(self.partial, "rb") as file:
            file.seek(len(MAGIC))
            for _ in range(self._done[1]):
                yield file.read(int.from_bytes(file.read(8)[:4], "little"))

    def _give_back_reserve(self) -> None:
        if self._reserve is not None:
            with contextlib.suppress(OSError):
                self._reserve.close()


def complete_end_record(bodies: Iterator[bytes], end: End | None) -> End:
    """`end` with count and hashes of all records before it; without `end`, one with the reason "interrupted"."""
    plain = hashlib.sha256()
    content = ContentHash()
    records = 0
    emitted: list[int] = []
    steps, wall_us = 0, 0.0
    for body in bodies:
        plain.update(body)
        record: dict[str, Any] = content.add(body)
        records += 1
        if record.get("kind") == "step":
            steps += 1
            emitted += record["emitted"]
            wall_us = (record["t_us"] or 0.0) + (record["wall_us"] or 0.0)  # null: a time that was not finite
    end = end or End(reason="interrupted", tokens=emitted, steps=steps, wall_us=wall_us)
    end.records = records
    end.sha256 = plain.hexdigest()
    end.content_hash = content.hexdigest()
    return end
