"""JSON schema: whether a schema is one, and what a finished text breaks of it, by the package `jsonschema`.

Numbers are decimals here, so that 0.3 is a multiple of 0.1. Nothing is fetched: a `$ref` leads to a place in the schema itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

SHOWN = 60  # characters of a value in a sentence
FAR = 400  # decimal places: numbers further from 1 than that are not compared
PATTERN_S = 1.0  # for which a pattern may search
# keyword -> what a value is that breaks it; {value} is of the text, {limit} of the schema
WORDS = {
    "minimum": "{value} is below {limit}",
    "exclusiveMinimum": "{value} is not above {limit}",
    "maximum": "{value} is above {limit}",
    "exclusiveMaximum": "{value} is not below {limit}",
    "multipleOf": "{value} is no multiple of {limit}",
    "format": "{value} has not the format {limit}",
    "pattern": "{value} does not match {limit}",
    "type": "{value} is not of the type {limit}",
    "enum": "{value} is none of {limit}",
    "const": "{value} is not {limit}",
    "required": "{value} lacks one of {limit}",
    "minLength": "{value} is shorter than {limit} characters",
    "maxLength": "{value} is longer than {limit} characters",
    "minItems": "{value} has fewer than {limit} items",
    "maxItems": "{value} has more than {limit} items",
    "minProperties": "{value} has fewer than {limit} keys",
    "maxProperties": "{value} has more than {limit} keys",
}
OTHERWISE = "{value} does not satisfy {limit}"


class _Unreadable(ValueError):
    """A value cannot be compared; the text says why."""


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text, with decimals. Raises ValueError if it is none, or if it cannot be compared."""
    try:
        return json.loads(text, parse_float=_decimal, parse_int=_whole, parse_constant=_refuse_constant)
    except RecursionError:
        raise _Unreadable("it is nested too deeply") from None


def find_schema_fault(text: str) -> str:
    """Why the JSON text of a schema is no valid schema, in words without a full stop; empty: it is one."""
    from jsonschema import FormatChecker
    from jsonschema.exceptions import SchemaError

    try:
        schema = read_json(text)
        # without the format "regex": patterns are not Python's
        _validator_class(schema).check_schema(schema, format_checker=FormatChecker(formats=()))
    except SchemaError as error:
        while error.context:  # the first of several ways to write it
            error = error.context[0]
        return _describe(error)
    except (RecursionError, ValueError) as error:
        return str(error) or "it is nested too deeply"
    return ""


def find_violations(schema: str, text: bytes) -> list[str]:
    """What a finished text breaks of the schema, as at most one sentence; empty: nothing."""
    import regex
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        broken = [*_validator(schema).iter_errors(read_json(text))]
    except (_Unreadable, Unresolvable, RecursionError, TimeoutError, regex.error) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        return [f"It is not known whether the text satisfies its schema: {why[:SHOWN]}."]
    except ValueError as error:
        return [f"The text does not satisfy its schema: it is no JSON ({error})."]
    if not broken:
        return []
    more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
    return [f"The text does not satisfy its schema: {_describe(best_match(broken))}{more}."]


def _describe(error: ValidationError | Any) -> str:
    """What is wrong, the keyword, and the place, if it is not the whole text."""
    value, limit = _shorten(error.instance), _shorten(error.validator_value)
    plain = not isinstance(error.validator_value, bool)
    words = (WORDS.get(error.validator, OTHERWISE) if plain else OTHERWISE).format(value=value, limit=limit)
    where = f", at {error.json_path}" if error.absolute_path else ""
    return f"{words} ({error.validator}){where}"


def _shorten(value: Any) -> str:
    """A value as JSON, cut where it is long."""
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, default=float, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _decimal(text: str) -> Decimal:
    value = Decimal(text)
    if max(abs(value.adjusted()), abs(int(value.as_tuple().exponent))) > FAR:
        raise _Unreadable(f"a number is too long to be compared, or beyond 1e{FAR}")
    return value


def _whole(text: str) -> int:
    if len(text) > FAR:
        raise _Unreadable(f"a number is too long to be compared, or beyond 1e{FAR}")
    return int(text)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


@lru_cache(maxsize=8)
def _validator(text: str) -> Any:
    """The validator of a schema's text, with the format checks of its draft."""
    schema = read_json(text)
    kind = _validator_class(schema)
    from referencing import Registry

    return kind(schema, format_checker=kind.FORMAT_CHECKER, registry=Registry())


def _validator_class(schema: Any) -> Any:
    """The validator of the draft that `$schema` names, else of 2020-12, with decimals, and patterns as grammars read them."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend, validator_for

    return extend(
        validator_for(schema, default=Draft202012Validator),
        {
            "multipleOf": _check_multiple,
            "pattern": _check_pattern,
            "patternProperties": _check_pattern_properties,
            "additionalProperties": _check_additional_properties,
        },
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_whole),
    )


def _is_whole(checker: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def _check_multiple(validator: Any, step: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if validator.is_type(value, "number") and (Fraction(value) / Fraction(step)).denominator != 1:
        yield ValidationError("no multiple")


def _check_pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if validator.is_type(value, "string") and not _matches(pattern, value):
        yield ValidationError("no match")


def _check_pattern_properties(
    validator: Any, patterns: Any, value: Any, schema: Any
) -> Iterator[ValidationError]:
    if validator.is_type(value, "object"):
        for pattern, below in patterns.items():
            for key, one in value.items():
                if _matches(pattern, key):
                    yield from validator.descend(one, below, path=key, schema_path=pattern)


def _check_additional_properties(
    validator: Any, below: Any, value: Any, schema: Any
) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(value, "object"):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    more = [x for x in value if x not in named and not any(_matches(pattern, x) for pattern in patterns)]
    if below is False and more:
        yield ValidationError("unexpected keys")
    for key in more if isinstance(below, dict) else ():
        yield from validator.descend(value[key], below, path=key)


def _matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text. Raises TimeoutError where that takes too long."""
    import regex

    return regex.search(pattern, text, timeout=PATTERN_S) is not None
