"""Strict JSON: the head of a record as plain values, or one clear refusal."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from .limits import Limits, TraceError

# One string, or the rest of the text if it never ends; possessive, so that no input makes it slow.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def parse(head: bytes, limits: Limits) -> dict[str, Any]:
    """The JSON object in `head`. Raises TraceError for what the format forbids, whatever the bytes.

    Numbers in it are finite but for those that `nonfinite` names: [[place..., "nan" | "inf" | "-inf"], ...].
    """
    _check_depth(head, limits.depth)
    try:
        value = _DECODER.decode(head.decode("utf-8"))
    except UnicodeDecodeError:
        raise TraceError("its text is not UTF-8") from None
    except TraceError:
        raise
    except ValueError as error:  # not JSON, or a whole number of thousands of digits
        raise TraceError(f"its head is not JSON ({str(error)[:80]})") from None
    if not isinstance(value, dict):
        raise TraceError("its head is not a JSON object")
    if _SURROGATE.search(head):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise TraceError("a text holds half of a surrogate pair") from None
    if "nonfinite" in value:
        _restore(value, value.pop("nonfinite"))
    return value


def _check_depth(head: bytes, depth: int) -> None:
    """Count brackets outside texts, before a parser sees them."""
    if head.count(b"[") + head.count(b"{") <= depth:
        return
    level = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", head)):
        level += 1 if bracket[0] in b"[{" else -1
        if level > depth:
            raise TraceError(f"its JSON is nested deeper than the limit of {depth}")


def _restore(value: dict[str, Any], nonfinite: Any) -> None:
    """Put the numbers that are not finite back in the places of their nulls."""
    wrong = TraceError("its field 'nonfinite' does not name nulls of the record")
    if not isinstance(nonfinite, list):
        raise wrong
    for entry in nonfinite:
        if not isinstance(entry, list) or len(entry) < 2:
            raise wrong
        *place, word = entry
        held: Any = {}
        at: Any = value
        for key in place:
            if not _has_entry(at, key):
                raise wrong
            held, at = at, at[key]
        if at is not None or not isinstance(word, str) or word not in _NONFINITE:
            raise wrong
        held[place[-1]] = _NONFINITE[word]


def _has_entry(value: Any, key: Any) -> bool:
    """True if `value` is an object or a list with an entry `key`."""
    if isinstance(value, dict):
        return isinstance(key, str) and key in value
    return isinstance(value, list) and type(key) is int and 0 <= key < len(value)


def _check_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in mapping if keys.count(key) > 1)
        raise TraceError(f"the key {twice[:40]!r} is given twice")
    return mapping


def _refuse_constant(word: str) -> NoReturn:
    raise TraceError(f"{word} is no number of JSON")


def _parse_finite(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise TraceError(f"the number {text[:20]} is not finite")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_check_unique_keys, parse_constant=_refuse_constant, parse_float=_parse_finite
)
