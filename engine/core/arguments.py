"""Arguments: what a public call may be handed, checked in one place. Each refusal is one sentence. No torch."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from .params import ParamError, did_you_mean

Along = bool | Literal["model"]  # what `check_reference_kind` makes of who reads along
SEEDS = (1 << 64) - 1  # the largest seed: a draw is keyed by 64 bits of it


def check_whole_number(value: Any, name: str, low: int | None = None, high: int | None = None) -> int:
    """`value` as an int in [low, high].

    Raises ParamError for anything that is no whole number, truths and text included.
    """
    limit = (
        "a whole number" + ("" if low is None else f" from {low}") + ("" if high is None else f" to {high}")
    )
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ParamError(f"{name} = {format_value(value)}: must be {limit}.")
    number = operator.index(value)
    if (low is not None and number < low) or (high is not None and number > high):
        raise ParamError(f"{name} = {format_value(value)}: must be {limit}.")
    return number


def check_choice(value: Any, name: str, choices: Sequence[str]) -> str:
    """`value`, one of `choices`; raises ParamError with the nearest of them."""
    if value not in choices:
        close = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise ParamError(f"{name} = {format_value(value)}:{close} Choose one of {', '.join(choices)}.")
    return str(value)


def check_reference_kind(value: Any, name: str = "reference") -> Along:
    """Return the kind of reference that runs along: none, a full cache, or the original model.

    True and "cache" mean a full cache next to the run's own cache. "model" means the model that the run's model was made from.
    Raises ParamError.
    """
    if isinstance(value, bool):
        return value
    return "model" if check_choice(value, name, ("cache", "model")) == "model" else True


def check_texts(value: Any, name: str) -> list[str]:
    """`value` as a list of texts; a text alone is a list of one. Raises ParamError for bytes, numbers and empty texts."""
    listed = [value] if isinstance(value, str) else value
    if isinstance(listed, bytes | bytearray) or not isinstance(listed, Iterable):
        raise ParamError(f"{name} = {format_value(value)}: must be a text, or a list of texts.")
    listed = list(listed)
    for text in listed:
        if not isinstance(text, str) or not text:
            raise ParamError(
                f"{name} holds {format_value(text)}: each of its texts must be a str that is not empty."
            )
    return listed


def check_ids(value: Any, name: str) -> list[int]:
    """`value` as a list of ints, such as token ids, from any sequence of whole numbers (a tensor or an array too).

    Raises ParamError for anything else, text and bytes included.
    """
    if isinstance(value, str):
        way = "model.tokenizer.encode turns text into them"
        raise ParamError(f"{name} = {format_value(value)}: must be a list of whole numbers; {way}.")
    if isinstance(value, bytes | bytearray):
        raise ParamError(
            f"{name} is {len(value)} bytes: give text (decode them), or token ids as a list of whole numbers."
        )
    if not isinstance(value, Iterable):
        raise ParamError(
            f"{name} = {format_value(value)}: must be a list of whole numbers, or a prompt's text."
        )
    tolist = getattr(value, "tolist", None)
    listed = list(value if tolist is None else tolist())
    if listed and isinstance(listed[0], str):
        raise ParamError(f"{name} is a list of texts: give one text; several are decoded by one call each.")
    return [check_whole_number(one, f"{name}[{i}]") for i, one in enumerate(listed)]


def format_value(value: Any) -> str:
    """A value for a message: short, and with its type if the text does not show it."""
    text = repr(value)
    if type(value) in (str, int, float, bool, type(None)) and len(text) <= 60:
        return text
    return f"{text[:57]}..." if type(value) in (str, int, float) else f"of type {type(value).__name__}"
