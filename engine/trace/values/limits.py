"""Limits of what a trace may hold, and the errors of this package."""

from __future__ import annotations

from dataclasses import dataclass

from decodescope.engine.core.refusal import Refusal

MIB = 1 << 20
# The whole numbers that every reader, JavaScript included, holds exactly.
BIGGEST = (1 << 53) - 1
# Texts of one run that are decoded together; a run has at most 64 of them.
TEXTS = 4096


class TraceError(Refusal):
    """A trace cannot be read or written. The message is one sentence: what, where, the limit, the way out."""


class StorageFull(TraceError):
    """The disk took no more. What was written before is readable; only `seal` is still possible."""


@dataclass(frozen=True)
class Limits:
    """How much a file may ask of the machine that opens it.

    file_bytes: on disk; expanded_bytes: of all heads and arrays together, counted while inflating; ratio: of one
    deflated array; depth: of nested JSON; record_bytes: one record on disk; string_bytes, piece_bytes: one text, one
    token's text; array_numbers: one array; steps: step records
    """

    name: str
    file_bytes: int
    expanded_bytes: int
    record_bytes: int
    ratio: int = 200
    depth: int = 64
    string_bytes: int = MIB
    piece_bytes: int = 4096
    array_numbers: int = 10_000_000
    steps: int = 1_000_000


# For files from anywhere: an attacker may have chosen every byte.
UPLOADED = Limits("uploaded traces", file_bytes=64 * MIB, expanded_bytes=256 * MIB, record_bytes=4 * MIB)
# Written on this machine: larger, read by range, held to the same form.
OWN = Limits("own traces", file_bytes=1024 * MIB, expanded_bytes=4096 * MIB, record_bytes=64 * MIB)
