"""Param: a knob of a component, declared once for control, check, message and record. No torch."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from .refusal import Refusal

# annotation of a field -> type of its value, and of its items if it is a list
TYPES: dict[str, tuple[type, type | None]] = {
    "int": (int, None),
    "float": (float, None),
    "float | str": (float, None),  # a number, or AUTO
    "bool": (bool, None),
    "str": (str, None),
    "tuple[int, ...]": (tuple, int),
    "tuple[float, ...]": (tuple, float),
    "tuple[str, ...]": (tuple, str),
}
SWITCH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
AUTO = "auto"  # given instead of a number: the part takes the number that belongs to the trained part in use
WORDS = 2000  # characters of a text for which no other limit is declared
SHOWN = 60  # characters of a value in a message


class ParamError(Refusal):
    """A knob was given a value outside its declared range, or does not exist. The message names the way out."""


@dataclass(frozen=True)
class Param:
    """One knob. `low` and `high` are inclusive; in a list they hold for each item.

    `choices` closes the set; `unit` and `help` are for people.

    item:        type of the items of a list, whose value is a tuple; typed with commas, or blanks, between them
    least, most: how many items a list has; most: also characters of a text, bytes of a file
    lines:       its text may have several lines
    file:        its text is the path of a file, which a page must not open for whoever typed it
    auto:        a number that may also be the word AUTO; the part sets the number when a run begins
    """

    name: str
    type: type
    default: Any
    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: tuple[Any, ...] = ()
    unit: str = ""
    help: str = ""
    file: bool = False
    item: Any = None
    least: int = 1
    most: int | None = None
    lines: bool = False
    auto: bool = False

    def check(self, value: Any, owner: str) -> Any:
        """Return `value` as this knob's type, or raise ParamError.

        `owner` is the component's name. A list may also be given as the text that a record holds for it.
        """
        where = f"{owner}.{self.name} = {_shorten_value(value)}"
        if self.auto and value == AUTO:
            return AUTO
        if self.choices:
            if value not in self.choices:
                raise ParamError(f"{where}: choose one of {', '.join(map(str, self.choices))}.")
            return value
        if self.item is not None and isinstance(value, str | list | tuple):
            return self._items(value, owner, where)
        wrong = ParamError(f"{where}: must be {self._kind_text}.")
        if self.type is bool:
            if not isinstance(value, bool):
                raise wrong
            return value
        if self.type in (int, float):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise wrong
            if not math.isfinite(value) or (self.type is int and value != int(value)):
                raise wrong
            value = self.type(value)
            if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
                raise ParamError(f"{where}: must lie in {self.range}.")
            return value
        if self.type is not str or not isinstance(value, str):
            raise wrong
        return self._text(value, owner)

    def _items(self, value: Any, owner: str, where: str) -> tuple[Any, ...]:
        """The items of a list, each checked in its place."""
        assert self.item is not None
        items = list(value)
        if isinstance(value, str):
            items = re.split(r"\s*,\s*|\s+", value.strip()) if value.strip() else []
        if len(items) < self.least or (self.most is not None and len(items) > self.most):
            reach = f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"
            raise ParamError(f"{where} has {len(items)} items: must have {reach}, {self._example_text}.")
        one = replace(self, type=self.item, item=None, most=None)
        named = [replace(one, name=f"{self.name}, item {place}") for place in range(1, len(items) + 1)]
        read = tuple(knob.read(x, owner) for knob, x in zip(named, items, strict=True))
        odd = next(
            (i for i, x in enumerate(read) if self.item is str and not re.fullmatch(r"[^\s,]+", x)), None
        )
        if odd is not None:
            raise ParamError(
                f"{owner}.{named[odd].name} = {_shorten_value(read[odd])}: must be one word, without a comma or blank."
            )
        return read

    def _text(self, value: str, owner: str) -> str:
        """A text that is not too long, and that a file can hold."""
        where = f"{owner}.{self.name}"
        most = WORDS if self.file or self.most is None else self.most
        if len(value) > most:
            raise ParamError(
                f"{where} has {len(value):,} characters, above the limit of {most:,}; shorten it."
            )
        odd = re.search("[\ud800-\udfff]", value)
        if odd is not None:
            raise ParamError(
                f"{where} holds a character that is not UTF-8, at place {odd.start() + 1}; leave it out."
            )
        return value

    @property
    def range(self) -> str:
        """The allowed interval in words, e.g. `[1, 64] tokens`."""
        low = "-inf" if self.low is None else f"{self.low:g}"
        high = "inf" if self.high is None else f"{self.high:g}"
        return f"[{low}, {high}] {self.unit}".rstrip() + (f", or be {AUTO}" if self.auto else "")

    @property
    def is_numeric(self) -> bool:
        """Whether it is a number, or a list of them."""
        return (self.item or self.type) in (int, float)

    @property
    def _example_text(self) -> str:
        return f"such as {self.spell(self.default)}" if self.default else "with commas between them"

    @property
    def _kind_text(self) -> str:
        if self.item is not None:
            return f"a list of {_PLURAL[self.item]}, {self._example_text}"
        return (f"{AUTO} or " if self.auto else "") + _ARTICLE.get(self.type, f"a {self.type.__name__}")

    def parse(self, text: str, owner: str) -> Any:
        """The knob's value from command-line text, e.g. `4`, `0.5`, `true`, `exact`, `3,2,1`; checked."""
        if self.type is bool:
            if text.lower() not in SWITCH:
                raise ParamError(f"{owner}.{self.name} = {_shorten_value(text)}: must be true or false.")
            return SWITCH[text.lower()]
        if self.type in (int, float) and not (self.auto and text.strip() == AUTO):
            try:
                value: Any = float(text)
            except ValueError:
                raise ParamError(
                    f"{owner}.{self.name} = {_shorten_value(text)}: must be {self._kind_text}."
                ) from None
            if self.type is int and math.isfinite(value) and value == int(value):
                value = int(value)
            return self.check(value, owner)
        return self.check(text.strip() if self.auto else text, owner)

    def read(self, value: Any, owner: str) -> Any:
        """The knob's value from a value or from text as it is typed; checked."""
        return self.parse(value, owner) if isinstance(value, str) else self.check(value, owner)

    def spell(self, value: Any) -> str:
        """A value as it is typed: what `parse` reads."""
        if self.item is not None and not isinstance(value, str):
            return ",".join(map(replace(self, type=self.item, item=None).spell, value))
        return str(value).lower() if isinstance(value, bool) else str(value)

    def record(self, value: Any) -> Any:
        """A value as a trace's header or a link holds it: a number, true or false, or text."""
        return self.spell(value) if self.item is not None else value


_ARTICLE = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_PLURAL = {int: "whole numbers", float: "numbers", str: "words"}


def _shorten_value(value: Any) -> str:
    """A value in a message, cut off where it is long."""
    said = repr(value)
    return said if len(said) <= SHOWN else f"{said[: SHOWN - 3]}..."


def param(  # noqa: PLR0913
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    step: float | None = None,
    choices: Iterable[Any] = (),
    unit: str = "",
    help: str = "",
    file: bool = False,
    least: int = 1,
    most: int | None = None,
    lines: bool = False,
    auto: bool = False,
) -> Any:
    """A dataclass field that is a knob. Range, unit and help serve control, check and message alike."""
    said = dict(low=low, high=high, step=step, choices=tuple(choices), unit=unit, help=help, file=file)
    return field(
        default=default,
        metadata={"param": {**said, "least": least, "most": most, "lines": lines, "auto": auto}},
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` if some known word is close, else the empty string."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
