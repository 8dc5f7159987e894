"""Param: a knob of a component, declared once for control, check, message and record. No torch."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .refusal import Refusal


class ParamError(Refusal):
    """A knob was given a value outside its declared range, or does not exist. The message names the way out."""


@dataclass(frozen=True)
class Param:
    """One knob. `low` and `high` are inclusive; `choices` closes the set; `unit` and `help` are for people; `file`: its text
    is the path of a file, which a page must not open for whoever typed it; `before`: the value that a record stands for
    which was written before the knob was there, if that is not the default."""

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
    before: Any = None

    def check(self, value: Any, owner: str) -> Any:
        """Return `value` as this knob's type, or raise ParamError. `owner` is the component's name."""
        where = f"{owner}.{self.name} = {value!r}"
        if self.choices:
            if value not in self.choices:
                raise ParamError(f"{where}: choose one of {', '.join(map(str, self.choices))}.")
            return value
        wrong = ParamError(f"{where}: must be {_article(self.type)}.")
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
        if not isinstance(value, self.type):
            raise wrong
        return value

    @property
    def range(self) -> str:
        """The allowed interval in words, e.g. `[1, 64] tokens`."""
        low = "-inf" if self.low is None else f"{self.low:g}"
        high = "inf" if self.high is None else f"{self.high:g}"
        return f"[{low}, {high}] {self.unit}".rstrip()

    def parse(self, text: str, owner: str) -> Any:
        """The knob's value from command-line text, e.g. `4`, `0.5`, `true`, `exact`; checked."""
        if self.type is bool:
            words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
            if text.lower() not in words:
                raise ParamError(f"{owner}.{self.name} = {text!r}: must be true or false.")
            return words[text.lower()]
        if self.type in (int, float):
            try:
                value: Any = float(text)
            except ValueError:
                raise ParamError(f"{owner}.{self.name} = {text!r}: must be {_article(self.type)}.") from None
            if self.type is int and math.isfinite(value) and value == int(value):
                value = int(value)
            return self.check(value, owner)
        return self.check(text, owner)


def _article(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(kind, f"a {kind.__name__}")


def param(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    step: float | None = None,
    choices: Iterable[Any] = (),
    unit: str = "",
    help: str = "",
    file: bool = False,
    before: Any = None,
) -> Any:
    """A dataclass field that is a knob. Range, unit and help serve control, check and message alike."""
    meta = dict(low=low, high=high, step=step, choices=tuple(choices), unit=unit, help=help, file=file, before=before)
    return field(default=default, metadata={"param": meta})


def nearest(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` if some known word is close, else the empty string."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
