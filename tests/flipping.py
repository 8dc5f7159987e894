"""A config with another value for one key, for every key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def flipped(value: Any) -> list[Any]:
    """Other values in the place of one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value // 2 if value > 1 else value + 1]
    if isinstance(value, float):
        return [value * 2 + 0.5]
    if isinstance(value, str):
        return ["other"]
    if isinstance(value, list):
        ints = bool(value) and all(type(x) is int for x in value)
        return [[*value[:-1], value[-1] - 1] if ints else ["other"]]
    return [7]


def flips(config: dict[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(full name of a key, the config with another value there), for every key."""
    for key, value in config.items():
        if isinstance(value, dict) and value:
            for name, inner in flips(value, f"{place}{key}."):
                yield name, {**config, key: inner}
        else:
            for other in flipped(value):
                yield f"{place}{key}", {**config, key: other}
