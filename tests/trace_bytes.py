"""Trace files taken apart and put together again: what tests of damaged and hostile traces change."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from decodescope.engine.trace.encoding.frame import MAGIC, frame_body, split
from decodescope.engine.trace.file.writer import complete_end_record


def record_bodies(data: bytes) -> list[bytes]:
    """The bodies of the records of a trace."""
    at, bodies = len(MAGIC), []
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        bodies.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    return bodies


def head_of(body: bytes) -> Any:
    """The head of a record, as plain data."""
    return json.loads(split(body)[0])


def with_head(body: bytes, head: Any) -> bytes:
    """A record with another head, and the arrays that it had."""
    text = json.dumps(head, separators=(",", ":")).encode()
    return struct.pack("<I", len(text)) + text + body[split(body)[1] :]


def trace_file(bodies: Sequence[bytes]) -> bytes:
    """A file of these records, each with its size and checksum."""
    return MAGIC + b"".join(map(frame_body, bodies))


def sealed_file(bodies: Sequence[bytes]) -> bytes:
    """A file of these records; the hashes of a last end record are right."""
    head = head_of(bodies[-1]) if bodies else None
    if isinstance(head, dict) and head.get("kind") == "end":
        end = complete_end_record(iter(bodies[:-1]), None)
        head |= {"records": len(bodies) - 1, "sha256": end.sha256, "content_hash": end.content_hash}
        bodies = [*bodies[:-1], with_head(bodies[-1], head)]
    return trace_file(bodies)
