"""Bytes to typed records: every declared field is checked against its type in events.py.

A field that the schema does not know is held to the limits and left out: the file keeps it, we ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from ..records.events import End, Header, Prefill, Record, Step
from ..values.limits import BIGGEST, OWN, Limits, TraceError
from ..values.strict_json import parse
from .frame import array_of, split
from .versions import check_schema

KINDS: dict[str, type] = {kind.kind: kind for kind in (Header, Prefill, Step, End)}


class FieldError(TraceError):
    """A field does not hold what it must; `path` names it, innermost first, and grows on the way out."""

    def __init__(self, message: str):
        super().__init__(message)
        self.path: list[str] = []

    def __str__(self) -> str:
        where = ".".join(reversed(self.path))
        return f"{where} {self.args[0]}" if where else str(self.args[0])


@dataclass
class DecodeState:
    """The record being read: its bytes, where its arrays begin, the limits, and what it has expanded to so far."""

    body: bytes
    base: int
    limits: Limits
    expanded: int


Convert = Callable[[Any, DecodeState], Any]
T = TypeVar("T")


def read_dataclass(kind: type[T], value: Any) -> T:
    """An object of one of our dataclasses from plain data, as `asdict` and JSON have it. Raises TraceError."""
    typed: T = _dataclass_converter(cast(Any, kind))(value, DecodeState(b"", 0, OWN, 0))
    return typed


def check_known_fields(kind: type, record: Mapping[str, Any], where: str) -> None:
    """Check the fields of a plain record that a dataclass knows; others, and missing ones, are not looked at.
    Raises TraceError, which names the field after `where`."""
    converters = _field_converters(kind)
    reading = DecodeState(b"", 0, OWN, 0)
    for name, value in record.items():
        if name in converters:
            try:
                converters[name](value, reading)
            except FieldError as wrong:
                wrong.path += [name, where]
                raise


def decode(body: bytes, limits: Limits) -> tuple[Record | None, int, int]:
    """The record in `body`, its `seq`, and the bytes it takes when expanded; None for a kind that we do not know."""
    head, base = split(body)
    plain = parse(head, limits)
    reading = DecodeState(body, base, limits, len(head))
    seq, kind = plain.pop("seq", None), plain.pop("kind", None)
    if type(seq) is not int or type(kind) is not str:
        raise TraceError("its head lacks 'kind' or 'seq'")
    if kind not in KINDS:
        _convert_any(plain, reading)
        return None, seq, reading.expanded
    if kind == Header.kind and type(schema := plain.get("schema")) is str:
        check_schema(schema)  # first: in another major version any field may be another one
    return _dataclass_converter(KINDS[kind])(plain, reading), seq, reading.expanded


@cache
def _field_converters(kind: type) -> dict[str, Convert]:
    """Field of a dataclass -> the converter of its values."""
    hints = get_type_hints(kind)
    return {f.name: converter(hints[f.name]) for f in fields(cast(Any, kind))}


@cache
def _dataclass_converter(kind: type) -> Convert:
    """Objects of one of our dataclasses."""
    converters = _field_converters(kind)
    required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]

    def to_dataclass(value: Any, reading: DecodeState) -> Any:
        if type(value) is not dict:
            raise FieldError("must be an object")
        values = {}
        for name, inner in value.items():
            try:
                convert = converters.get(name)
                if convert is None:
                    _convert_any(inner, reading)
                else:
                    values[name] = (
                        inner
                        if type(inner) is float and convert is _convert_float
                        else convert(inner, reading)
                    )
            except FieldError as wrong:
                wrong.path.append(name[:40])
                raise
        for name in required:
            if name not in values:
                raise FieldError(f"lacks the field {name!r}")
        return kind(**values)

    return to_dataclass


def converter(hint: Any) -> Convert:
    """The function that checks a value against a type of events.py, and returns it as that type."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin is Literal:
        return _convert_text
    if origin in (Union, UnionType):
        if NoneType not in inside:
            if all(is_dataclass(one) for one in inside):
                return _tagged_converter(inside)
            if inside[0] is float:
                return _number_or_mapping_converter(inside[1])
            if inside[0] is int:
                return _convert_nested
            return _convert_piece
        left = [one for one in inside if one is not NoneType]
        return _optional_converter(converter(Union[tuple(left)]))  # noqa: UP007  # built at run time
    if origin is list:
        return _list_converter(inside[0])
    if origin in (tuple, frozenset):
        return _group_converter(origin, inside[0])
    if origin in (dict, Mapping):
        return _mapping_converter(converter(inside[1]))
    return _tagged_converter((hint,)) if hasattr(hint, "shape") else _dataclass_converter(hint)


def _tagged_converter(kinds: tuple[Any, ...]) -> Convert:
    """A converter to one of several dataclasses; their field `shape` selects one."""
    by_shape = {kind.shape: _dataclass_converter(kind) for kind in kinds}

    def to_one(value: Any, reading: DecodeState) -> Any:
        shape = value.get("shape") if type(value) is dict else None
        if type(shape) is not str or shape not in by_shape:
            raise FieldError(f"must be an object with a shape, one of {', '.join(by_shape)}")
        return by_shape[shape](value, reading)

    return to_one


def _convert_int(value: Any, reading: DecodeState) -> int:
    if type(value) is not int or not -BIGGEST <= value <= BIGGEST:
        raise FieldError(f"must be a whole number within {BIGGEST:,}")
    return value


def _convert_float(value: Any, reading: DecodeState) -> float:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise FieldError("must be a number")
    return float(_convert_int(value, reading))


def _convert_bool(value: Any, reading: DecodeState) -> bool:
    if type(value) is not bool:
        raise FieldError("must be true or false")
    return value


def _convert_text(value: Any, reading: DecodeState) -> str:
    if type(value) is not str:
        raise FieldError("must be text")
    if len(value) > reading.limits.string_bytes and len(value.encode()) > reading.limits.string_bytes:
        raise FieldError(
            f"has {len(value):,} characters, above the limit of {reading.limits.string_bytes:,} bytes"
        )
    return value


def _convert_piece(value: Any, reading: DecodeState) -> Any:
    limit = reading.limits.piece_bytes
    if type(value) is str:
        if len(value.encode()) > limit:
            raise FieldError(
                f"has {len(value.encode()):,} bytes, above the limit of {limit:,} for the text of a token"
            )
    elif (
        type(value) is not list
        or len(value) > limit
        or not all(type(c) is str and c in _CODES for c in value)
    ):
        raise FieldError("must be text, or a list of bytes as two hex digits each")
    return value


def _convert_array(value: Any, reading: DecodeState) -> np.ndarray:
    if type(value) is not dict or "$array" not in value:
        raise FieldError("must be an array")
    try:
        array = array_of(value, reading.body, reading.base, reading.limits)
    except TraceError as error:
        raise FieldError(f"cannot be read: {error}") from None
    _count_expanded(reading, array.nbytes)
    return array


def _convert_any(value: Any, reading: DecodeState) -> Any:
    """A value of no declared type, arrays in it included."""
    kind = type(value)
    if kind is int:
        return _convert_int(value, reading)
    if kind is str:
        return _convert_text(value, reading)
    if kind is list:
        return [_convert_any(inner, reading) for inner in value]
    if kind is dict:
        return (
            _convert_array(value, reading)
            if "$array" in value
            else _mapping_converter(_convert_any)(value, reading)
        )
    return value


def _mapping_converter(convert: Convert) -> Convert:
    def to_dict(value: Any, reading: DecodeState) -> Any:
        if type(value) is not dict:
            raise FieldError("must be an object")
        mapping = {}
        for key, inner in value.items():
            try:
                mapping[_convert_text(key, reading)] = convert(inner, reading)
            except FieldError as wrong:
                wrong.path.append(key[:40])
                raise
        return mapping

    return to_dict


def _optional_converter(convert: Convert) -> Convert:
    return lambda value, reading: None if value is None else convert(value, reading)


def _list_converter(inner: Any) -> Convert:
    """Lists; those of plain numbers are checked as a whole, since most of a record is made of them."""
    convert, kinds = converter(inner), _NUMBERS.get(inner, frozenset())

    def to_list(value: Any, reading: DecodeState) -> Any:
        if type(value) is not list:
            raise FieldError("must be a list")
        if len(value) > reading.limits.array_numbers:
            raise FieldError(
                f"has {len(value):,} entries, above the limit of {reading.limits.array_numbers:,}"
            )
        if (
            kinds
            and kinds.issuperset(map(type, value))
            and (float in kinds or not value or _all_in_range(value))
        ):
            return value
        items = []
        for i, one in enumerate(value):
            try:
                items.append(convert(one, reading))
            except FieldError as wrong:
                wrong.path.append(str(i))
                raise
        return items

    return to_list


def _group_converter(kind: type[tuple[Any, ...]] | type[frozenset[Any]], inner: Any) -> Convert:
    """Tuples and sets, which plain data hold as lists."""
    listed = _list_converter(inner)
    return lambda value, reading: kind(listed(list(value) if isinstance(value, kind) else value, reading))


def _number_or_mapping_converter(hint: Any) -> Convert:
    """A number for all, or one each by name."""
    mapping = converter(hint)
    return lambda value, reading: (mapping if type(value) is dict else _convert_float)(value, reading)


def _convert_nested(value: Any, reading: DecodeState) -> Any:
    """A whole number for all, one for each, or a list of them for each, as many everywhere."""
    if type(value) is not list:
        return _convert_int(value, reading)
    rows = _list_converter(list[int] if value and type(value[0]) is list else int)(value, reading)
    if not rows or (type(rows[0]) is list and {len(row) for row in rows} != {max(1, len(rows[0]))}):
        raise FieldError("must have a number for each, and as many everywhere")
    return rows


def _all_in_range(value: list[int]) -> bool:
    return min(value) >= -BIGGEST and max(value) <= BIGGEST


def _count_expanded(reading: DecodeState, nbytes: int) -> None:
    reading.expanded += nbytes
    if reading.expanded > reading.limits.expanded_bytes:
        raise FieldError(f"expands the trace beyond the limit of {reading.limits.expanded_bytes:,} bytes")


_CODES = frozenset(f"{i:02x}" for i in range(256)) | frozenset(f"{i:02X}" for i in range(256))
_SIMPLE: dict[Any, Convert] = {
    Any: _convert_any, int: _convert_int, float: _convert_float, bool: _convert_bool, str: _convert_text,
    np.ndarray: _convert_array,
}  # fmt: skip
_NUMBERS: dict[Any, frozenset[type]] = {
    int: frozenset([int]),
    float: frozenset([float]),
    float | None: frozenset([float, NoneType]),
    bool: frozenset([bool]),
}
