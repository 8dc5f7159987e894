"""Frames: how a record is stored in the file as bytes.

    file   = magic, then records
    record = u32 size of body | u32 CRC-32 of body | body
    body   = u32 size of head | head: UTF-8 JSON | arrays, each padded to 8 bytes

Little-endian throughout. The head refers to an array as {"$array": [dtype, shape, offset, nbytes]}, where offset counts
from the end of the head; {"$array": [...], "z": 1} means that its nbytes are deflated.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any

import numpy as np
import orjson

from ..records.events import Record
from ..values.limits import BIGGEST, OWN, Limits, TraceError

MAGIC = b"DSTRACE\x01"
DTYPES = frozenset(["|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"])
DEFLATE_ABOVE = 4096
_NAMES: dict[type, tuple[str, ...]] = {}
_FINITE = frozenset([int, bool, str, NoneType])  # most values of a record: none of them has to be looked into
_HEAD = struct.Struct("<I")


def encode(record: Record, seq: int) -> bytes:
    """The body of `record` as number `seq`. Fields that are None are left out.

    Numbers that are not finite are written as null, and `nonfinite` lists where and which: [[place..., word], ...].
    """
    arrays = _Arrays()
    plain = {"kind": record.kind, "seq": seq, **_recorded_fields(record)}
    head = _encode_fast(plain, arrays)
    if head is None:
        arrays = _Arrays()
        text = json.JSONEncoder(**_COMPACT, default=arrays.convert).encode(_without_nonfinite(plain))
        head = text.encode("utf-8", "replace")  # a lone surrogate becomes a question mark
    return b"".join((_HEAD.pack(len(head)), head, *arrays.parts))


def frame_body(body: bytes) -> bytes:
    """`body` with its size and checksum in front."""
    if len(body) > OWN.record_bytes:
        raise TraceError(
            f"A record of {len(body):,} bytes is above the limit of {OWN.record_bytes:,}: record fewer layers at level "
            "'full', or a lower level."
        )
    return struct.pack("<II", len(body), zlib.crc32(body)) + body


def split(body: bytes) -> tuple[bytes, int]:
    """The head of a body, and where its arrays begin."""
    if len(body) < 4:
        raise TraceError("the record is too short to hold a head")
    (size,) = _HEAD.unpack_from(body)
    if 4 + size > len(body):
        raise TraceError(f"its head claims {size:,} bytes, but the record holds {len(body) - 4:,}")
    return body[4 : 4 + size], 4 + size


def _encode_fast(plain: dict[str, Any], arrays: _Arrays) -> bytes | None:
    """The head by orjson, several times as fast; None if its result has to be looked at more closely: it writes null
    for a number that is not finite, and takes neither lone surrogates nor keys that are no text."""
    try:
        head = orjson.dumps(plain, arrays.convert, orjson.OPT_PASSTHROUGH_DATACLASS)
    except orjson.JSONEncodeError:
        return None
    return None if b"null" in head and _has_nonfinite(plain) else head


def _has_nonfinite(value: Any) -> bool:
    """True if a number in `value`, at any depth, is not finite."""
    if isinstance(value, float | np.floating):
        return not math.isfinite(value)
    if isinstance(value, list | tuple):
        return any(_has_nonfinite(x) for x in value if type(x) not in _FINITE)
    if isinstance(value, dict):
        return any(_has_nonfinite(x) for x in value.values() if type(x) not in _FINITE)
    return is_dataclass(value) and _has_nonfinite(vars(value))


_COMPACT: dict[str, Any] = dict(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
)


def _recorded_fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass that were recorded, not going deeper."""
    kind = type(record)
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(f.name for f in fields(kind))
    values = record.__dict__
    return {name: value for name in names if (value := values[name]) is not None}


class _Arrays:
    """Gathers the arrays of one record while its head is written."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def convert(self, value: Any) -> Any:
        """Convert what JSON cannot express: our dataclasses, arrays, and numpy numbers."""
        if type(value) in _NAMES:
            return _recorded_fields(value)
        if isinstance(value, np.ndarray):
            return self.add(value)
        if isinstance(value, np.generic):
            return value.item()
        if is_dataclass(value):
            return _recorded_fields(value)
        raise TraceError(
            f"A record holds a {type(value).__name__}: give numbers, text, lists or numpy arrays instead."
        )

    def add(self, array: np.ndarray) -> dict[str, Any]:
        """Store the bytes of `array`; return its reference for the head."""
        dtype = array.dtype.str
        if dtype not in DTYPES:
            array, dtype = _little_endian(array)
        raw = array.tobytes()
        size = len(raw)
        reference: dict[str, Any] = {"$array": (dtype, array.shape, self.size, size)}
        if size > DEFLATE_ABOVE:
            small = zlib.compress(raw, 1)
            # above the ratio a reader would take it for a bomb
            if len(small) < size <= OWN.ratio * len(small):
                raw, size = small, len(small)
                reference = {"$array": (dtype, array.shape, self.size, size), "z": 1}
        self.parts.append(raw)
        if pad := -size % 8:
            self.parts.append(bytes(pad))
        self.size += size + pad
        return reference


def _little_endian(array: np.ndarray) -> tuple[np.ndarray, str]:
    array = array.astype(array.dtype.newbyteorder("<"))
    if array.dtype.str not in DTYPES:
        raise TraceError(
            f"A record holds an array of {array.dtype}, which a trace cannot: give plain numbers."
        )
    return array, array.dtype.str


def _without_nonfinite(plain: dict[str, Any]) -> dict[str, Any]:
    """`plain` with null instead of each number that is not finite, and `nonfinite`: [[place..., word], ...]."""
    rows: list[list[Any]] = []

    def walk(value: Any, place: list[Any]) -> Any:
        if is_dataclass(value):
            value = _recorded_fields(value)
        if isinstance(value, dict):
            return {key: walk(inner, [*place, str(key)]) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [walk(inner, [*place, i]) for i, inner in enumerate(value)]
        if isinstance(value, float | np.floating) and not math.isfinite(value):
            rows.append([*place, str(float(value))])
            return None
        return value

    return {**walk(plain, []), "nonfinite": rows}


def raw_array(reference: dict[str, Any], body: bytes, base: int, limits: Limits = OWN) -> bytes:
    """The bytes of the array in `reference`; its head ended at `base`. Raises TraceError."""
    dtype, shape = _dtype_and_shape(reference, limits)
    at, stored = reference["$array"][2:]
    if (
        type(at) is not int
        or type(stored) is not int
        or at < 0
        or stored < 0
        or base + at + stored > len(body)
    ):
        raise TraceError(f"an array claims bytes {at} to {at} + {stored} of {len(body) - base:,}")
    raw = body[base + at : base + at + stored]
    wanted = math.prod(shape) * dtype.itemsize
    if reference.get("z"):
        if wanted > limits.ratio * stored:
            raise TraceError(
                f"a deflated array expands more than {limits.ratio} times: {stored:,} to {wanted:,} bytes"
            )
        try:
            raw = _inflate(raw, wanted)
        except zlib.error:
            raise TraceError("a deflated array is damaged") from None
    if len(raw) != wanted:
        raise TraceError(
            f"an array of {dtype.name}, shape {list(shape)}, needs {wanted:,} bytes, not {len(raw):,}"
        )
    return raw


def array_of(reference: dict[str, Any], body: bytes, base: int, limits: Limits = OWN) -> np.ndarray:
    """The array in `reference`, read-only. Raises TraceError."""
    dtype, shape = _dtype_and_shape(reference, limits)
    array = np.frombuffer(raw_array(reference, body, base, limits), dtype).reshape(shape)
    if dtype.itemsize == 8 and dtype.kind in "iu" and array.size:
        if int(array.max()) > BIGGEST or int(array.min()) < -BIGGEST:
            raise TraceError(f"an array holds a whole number beyond {BIGGEST:,}")
    elif dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise TraceError("an array of true and false holds other bytes")
    return array


def _dtype_and_shape(reference: dict[str, Any], limits: Limits) -> tuple[np.dtype, tuple[int, ...]]:
    what = reference["$array"]
    extra = {key: value for key, value in reference.items() if key != "$array"}
    if not isinstance(what, list) or len(what) != 4 or extra not in ({}, {"z": 1}):
        raise TraceError('an array is not written as {"$array": [dtype, shape, offset, nbytes]}')
    dtype, shape = what[:2]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise TraceError(f"an array has the dtype {str(dtype)[:20]!r}; known are {', '.join(sorted(DTYPES))}")
    if (
        not isinstance(shape, list)
        or len(shape) > 8
        or any(type(n) is not int or not 0 <= n <= BIGGEST for n in shape)
    ):
        raise TraceError("the shape of an array is not a short list of sizes")
    if math.prod(shape) > limits.array_numbers:
        raise TraceError(
            f"an array has {math.prod(shape):,} numbers, above the limit of {limits.array_numbers:,}"
        )
    return np.dtype(dtype), tuple(shape)


def _inflate(stored: bytes, wanted: int) -> bytes:
    """Inflate, making no more than `wanted` bytes (and one, to notice that there would be more)."""
    inflating = zlib.decompressobj()
    raw = inflating.decompress(stored, wanted + 1)
    return raw if inflating.eof and not inflating.unused_data else b""
