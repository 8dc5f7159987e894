"""Scope: the numbers and texts that the formulas and sentences of a declaration name, for a row or for a whole detail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from ..values.formula import LISTS, Names, agree, evaluate_formula, formula, relation, sentence
from ..values.relations import Relation, is_given
from .declarations import DetailColumn, Sentence

Text = Callable[[Sequence[int]], str]


class FormulaScope:
    """The names that a formula may use. Earlier mappings override later ones.

    own:    column or value -> its entry;  above: the same of the row above, None above the first
    types:  column or value -> its declared type;  text: ids -> text, needed for sentences alone
    """

    def __init__(
        self,
        own: Mapping[str, Any],
        types: Mapping[str, str],
        above: Mapping[str, Any] | None = None,
        text: Text | None = None,
    ):
        self._own = own
        self._types = types
        self._above = above
        self._text = text

    def entry(self, name: str) -> Any:
        """The entry of that name; None if there is none."""
        return self._own.get(name)

    @property
    def number(self) -> Names:
        """Name -> its number, None if there is none."""
        own, above = self._own, self._above

        def of(name: str) -> float | None:
            if name.startswith("before("):
                return 0.0 if above is None else _as_number(above.get(name[7:-1]))
            if name.endswith(")"):
                what, _, of = name[:-1].partition("(")
                return _list_value(what, own.get(of))
            return _as_number(own.get(name))

        return of

    def value(self, text: str) -> float | None:
        """The value of a formula; None if a number is missing, or there is none."""
        number = evaluate_formula(formula(text), self.number)
        return number if number is not None and math.isfinite(number) else None

    def holds(self, text: str, within: float = 1e-9) -> bool | None:
        """True if a relation holds up to rounding; None if a number is missing."""
        left, sign, right = relation(text)
        a, b = evaluate_formula(left, self.number), evaluate_formula(right, self.number)
        return None if a is None or b is None else agree(a, sign, b, within)

    def breaks(self, due: Relation) -> bool:
        """True if a relation is due here and does not hold, or has a missing number."""
        return is_given(due.given, self._own) and self.holds(due.holds, due.within) is not True

    def values_match(self, one: Sentence) -> bool:
        """True if names have the values that a sentence requires."""
        for name, wanted in one.given.items():
            entry = self.entry(name)
            if not (entry in wanted if isinstance(wanted, list) else entry == wanted):
                return False
        return True

    def applies(self, one: Sentence) -> bool:
        """True if a sentence applies."""
        return self.values_match(one) and (not one.where or self.holds(one.where) is True)

    def say(self, one: Sentence) -> str | None:
        """The sentence with its numbers and texts; None if it does not apply, or something is missing."""
        if not self.applies(one):
            return None
        said = ""
        for part in sentence(one.text):
            words = part if isinstance(part, str) else self.write(*part)
            if words is None:
                return None
            said += words
        return said

    def say_first(self, sentences: Iterable[Sentence]) -> str:
        """The first sentence that applies and is not empty; "" for none."""
        return next((said for one in sentences if (said := self.say(one))), "")

    def say_all(self, sentences: Iterable[Sentence]) -> list[str]:
        """All sentences that apply."""
        return [said for one in sentences if (said := self.say(one)) is not None]

    def is_text(self, name: str) -> bool:
        """True if a name refers to a text or tokens."""
        entry = self.entry(name)
        return isinstance(entry, str) or (entry is not None and self._types.get(name) in ("token", "tokens"))

    def write(self, what: Any, form: str) -> str | None:
        """A formula's number in a form, or the text that a name refers to."""
        if isinstance(what, str) and self.is_text(what):
            entry = self.entry(what)
            if isinstance(entry, str):
                return entry
            ids = entry if isinstance(entry, list) else [entry]
            return None if self._text is None else self._text([x for x in ids if type(x) is int and x >= 0])
        number = evaluate_formula(what, self.number)
        return None if number is None else format_number(number, form)


def format_number(number: float, form: str) -> str:
    """A number in the form of a sentence: a count of decimals, "p" as a page writes probabilities, "n" for a count, "of" for a
    share as cases of 100, "g", or "" for a whole number or four figures. Infinity, and what is no number, is
    a word in each form."""
    if not math.isfinite(number):
        return f"{number:g}"
    if form.isdigit():
        return f"{number:.{form}f}"
    if form == "p":
        return _format_probability(number)
    if form == "n":
        return f"{round(number):,}"
    if form == "of":
        return f"{100 * number:.3g} of 100 cases"
    if not form and float(number).is_integer():
        return str(int(number))
    return f"{number:g}" if form == "g" else f"{number:.4g}"


def types_of(columns: Iterable[DetailColumn]) -> dict[str, str]:
    """Name -> declared type."""
    return {x.name: x.type for x in columns}


def _as_number(x: Any) -> float | None:
    """None also for what is no number, so that nothing is compared with it."""
    return float(x) if isinstance(x, int | float) and x == x else None


def _list_value(what: str, entries: Any) -> float | None:
    """How many entries a list has, their sum or their mean (of none 0); None if it is no list, or lacks one."""
    if not isinstance(entries, list) or what not in LISTS:
        return None
    if what == "count":
        return float(len(entries))
    numbers = [x for x in entries if isinstance(x, int | float)]
    if len(numbers) < len(entries):
        return None
    total = float(sum(numbers))
    return total if what == "sum" else total / max(len(numbers), 1)


def _format_probability(x: float) -> str:
    """A number with three places, more where it is small, rounded as a page rounds it."""
    if x == 0:
        return "0"
    if abs(x) < 1e-6:
        mantissa, _, power = f"{x:.1e}".partition("e")
        return f"{mantissa}e{int(power):+d}"
    least = Decimal("0.001") if x >= 0.001 or x <= -0.0995 else Decimal("0.000001")
    return str(Decimal(x).quantize(least, ROUND_HALF_UP)) if abs(x) < 1e15 else f"{x:.3f}"
