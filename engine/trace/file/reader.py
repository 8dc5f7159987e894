"""Read a trace file: find its records, check which of them are whole, and decode them."""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from decodescope.engine.core.arguments import format_value

from ..checks.record_consistency import (
    validate_end,
    validate_header,
    validate_prefill,
    validate_step,
    vocab_size,
)
from ..encoding.frame import MAGIC, split
from ..encoding.record_decoder import decode
from ..encoding.versions import SchemaVersionError
from ..records.events import End, Header, Prefill, Record, Step
from ..values.limits import MIB, OWN, Limits, TraceError
from ..values.strict_json import parse

_STEP = b'{"kind":"step",'
_SIZES = struct.Struct("<II")
_CHUNK = 4 * MIB


def read_records(path: str | Path, limits: Limits = OWN) -> Iterator[Record]:
    """The records of a trace, each checked, kinds of a newer version left out. Raises TraceError at the first damage,
    after the good records before it; the torn last record of a .partial file is left out silently."""
    file = TraceFile(path, limits)
    with file:
        yield from file.records()
        if file.damage:
            raise TraceError(file.damage)


def read_header(path: str | Path, limits: Limits = OWN) -> Header:
    """The header of a trace, checked, without a look at what follows it. Raises TraceError."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(MAGIC) + 8)
            size, crc = _SIZES.unpack(start[len(MAGIC) :]) if len(start) == len(MAGIC) + 8 else (0, 0)
            body = file.read(size) if start.startswith(MAGIC) and size <= limits.record_bytes else b""
    except OSError as error:
        raise TraceError(f"{path} cannot be opened: {error.strerror or error}.") from None
    if not body or len(body) != size or zlib.crc32(body) != crc:
        raise TraceError(f"{path} does not begin with a whole header: it is no trace, or a damaged one.")
    try:
        header = decode(body, limits)[0]
    except SchemaVersionError as error:
        raise TraceError(f"{path}: {error}.") from None
    if not isinstance(header, Header):
        raise TraceError(f"{path} does not begin with a header: it is no trace.")
    validate_header(header)
    return header


class TraceFile:
    """The records of one file, found by one pass over it and decoded on demand.

    damage:  what is wrong after the last good record, or None. A torn end is no damage in a .partial file: it grows.
    cut:     True if the only damage is that the file ends before the run's end record
    steps:   record numbers of the steps, in order; prefill, end: record numbers, or None
    """

    def __init__(self, path: str | Path, limits: Limits = OWN):
        if not isinstance(path, str | os.PathLike):
            raise TraceError(f"path is {format_value(path)}: give the path of a trace file.")
        self.path, self.limits = Path(path), limits
        self.damage: str | None = None
        self.cut = False
        self.steps = array("I")
        self.prefill: int | None = None
        self.end: int | None = None
        self._at = array("Q")  # where the body of each record begins
        self._size = array("I")
        self._next = len(MAGIC)
        self._hash = hashlib.sha256()
        self._lock = threading.Lock()
        try:
            self._file = open(self.path, "rb", buffering=0)  # noqa: SIM115  # read by range as long as this lives
        except OSError as error:
            raise TraceError(f"{self.path} cannot be opened: {error.strerror or error}.") from None
        try:
            self._begin()
        except BaseException:
            self._file.close()
            raise

    def _begin(self) -> None:
        if self._read(0, len(MAGIC)) != MAGIC:
            raise TraceError(
                f"{self.path} is not a DecodeScope trace, which begins with {MAGIC!r}: choose a file of a run."
            )
        self.vocab = 0
        self.refresh()
        if not self._at:
            raise TraceError(
                self.damage or f"{self.path} does not hold a whole header yet: there is nothing to show."
            )

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._at)

    def refresh(self) -> int:
        """Look for records that were added since the last look; return how many there are now."""
        if self.end is None and self.damage is None:
            size = os.fstat(self._file.fileno()).st_size
            if size > self.limits.file_bytes:
                raise TraceError(
                    f"{self.path} has {size:,} bytes, above the limit of {self.limits.file_bytes:,} for "
                    f"{self.limits.name}: record fewer tokens, or a lower level."
                )
            self.damage = self._scan(size)
            if self.end is not None and self.damage is None:
                self.damage = self._check_end(size)
        return len(self)

    def record(self, number: int) -> Record | None:
        """Record `number`, checked; None if its kind is of a newer version. Raises TraceError."""
        return self._decode(number)[0]

    def step(self, index: int) -> Step:
        """Step `index` of the run."""
        record = self.record(self.steps[index])
        assert isinstance(record, Step)
        return record

    def records(self) -> Iterator[Record]:
        """All records of known kinds, in order, counting what they expand to."""
        expanded = 0
        for number in range(len(self)):
            record, more = self._decode(number)
            expanded += more
            if expanded > self.limits.expanded_bytes:
                raise self._record_error(
                    number,
                    f"the trace expands to more than the limit of {self.limits.expanded_bytes:,} bytes",
                )
            if record is not None:
                yield record

    def body(self, number: int) -> bytes:
        """The bytes of record `number`, without size and checksum."""
        body = self._read(self._at[number], self._size[number])
        if len(body) != self._size[number]:
            raise self._record_error(number, "the file was cut short while it was open")
        return body

    def _decode(self, number: int) -> tuple[Record | None, int]:
        try:
            record, seq, expanded = decode(self.body(number), self.limits)
            if seq != number:
                raise TraceError(
                    f"it says that it is record {seq}: records are missing, repeated or out of order"
                )
            if isinstance(record, Step):
                validate_step(record, bisect_left(self.steps, number), self.vocab, self.header.details)
            elif isinstance(record, Header):
                validate_header(record)
            elif isinstance(record, Prefill):
                validate_prefill(record, self.header)
            elif isinstance(record, End):
                validate_end(record, self.vocab)
        except TraceError as error:
            raise self._record_error(number, str(error)) from None
        return record, expanded

    def _scan(self, size: int) -> str | None:
        """Walk over the frames from the last whole record on; return what stopped the walk, if it is damage."""
        growing = self.path.name.endswith(".partial")
        chunk, start = b"", self._next
        while self._next < size and self.end is None:
            at = self._next - start
            if at + 8 > len(chunk):
                chunk = self._read(self._next, _CHUNK)
                start = self._next
                at = 0
                if len(chunk) < 8:
                    return None if growing else self._torn_end_text()
            length, crc = _SIZES.unpack_from(chunk, at)
            if length > self.limits.record_bytes:
                return self._damage_text(
                    f"its size of {length:,} bytes is above the limit of {self.limits.record_bytes:,}"
                )
            if at + 8 + length > len(chunk):
                chunk = self._read(self._next, max(_CHUNK, 8 + length))
                start = self._next
                at = 0
                if 8 + length > len(chunk):
                    return None if growing else self._torn_end_text()
            body = chunk[at + 8 : at + 8 + length]
            if zlib.crc32(body) != crc:
                if growing and self._next + 8 + length == size:
                    return None  # being written at this moment
                return self._damage_text("its checksum does not match its bytes")
            try:
                self._index_record(body)
            except TraceError as error:
                return (
                    f"{self.path}: {error}."
                    if isinstance(error, SchemaVersionError)
                    else self._damage_text(str(error))
                )
        return (
            None
            if growing or self.end is not None
            else self._torn_end_text("the file ends without an end record")
        )

    def _index_record(self, body: bytes) -> None:
        """Enter one whole record into the index."""
        number = len(self)
        if number > self.limits.steps + 16:
            raise TraceError(f"there are more records than the limit of {self.limits.steps:,} steps allows")
        if number == 0:
            kind = self._enter_header(body)
        elif body.startswith(_STEP, 4):  # as we write it: it is parsed on request
            kind = "step"
        else:
            kind = parse(split(body)[0], self.limits).get("kind", "")
        if (kind == "header" and number) or (kind == "prefill" and self.prefill is not None):
            raise TraceError(f"a record of kind {str(kind)[:20]!r} has no place here")
        if kind == "step":
            self.steps.append(number)
        elif kind == "prefill":
            self.prefill = number
        elif kind == "end":
            self.end = number
        if kind != "end":
            self._hash.update(body)
        self._at.append(self._next + 8)
        self._size.append(len(body))
        self._next += 8 + len(body)

    def _enter_header(self, body: bytes) -> str:
        header, _, _ = decode(body, self.limits)
        if not isinstance(header, Header):
            raise TraceError("it is not the header that a trace begins with")
        validate_header(header)
        self.header, self.vocab = header, vocab_size(header)
        return "header"

    def _check_end(self, size: int) -> str | None:
        number = len(self) - 1
        try:
            end = self.record(number)
        except TraceError as error:
            self.end = None
            return str(error)
        assert isinstance(end, End)
        if end.records != number:
            return str(
                self._record_error(
                    number, f"it counts {end.records} records before it, where there are {number}"
                )
            )
        if end.sha256 != self._hash.hexdigest():
            return str(
                self._record_error(number, "the hash in the end record is not that of the records before it")
            )
        return (
            self._damage_text(f"{size - self._next:,} bytes follow the end record")
            if size > self._next
            else None
        )

    def _torn_end_text(self, how: str = "the file ends in the middle of it") -> str:
        self.cut = True
        return self._damage_text(how)

    def _damage_text(self, what: str) -> str:
        return str(self._record_error(len(self), what))

    def _record_error(self, number: int, what: str) -> TraceError:
        return TraceError(
            f"{self.path}, record {number}: {what}; open an intact copy, or record the run again."
        )

    def _read(self, at: int, size: int) -> bytes:
        with self._lock:
            self._file.seek(at)
            data = self._file.read(size)
            while 0 < len(data) < size and (more := self._file.read(size - len(data))):
                data += more
            return data
