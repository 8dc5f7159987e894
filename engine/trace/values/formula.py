"""Formula: a few sums over named numbers, as text in a trace and as nested lists when they are computed.

"min(1, before(w) * p / q)" becomes ["min", 1.0, ["/", ["*", ["before", "w"], "p"], "q"]]: a number, a name, or what is done
and to what. So a page works them out in ten lines and reads no text.

`count(x)`, `sum(x)` and `mean(x)` work on the list under the name x, if there are lists: in details.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

LONGEST = 200  # characters
Formula = float | str | list[Any]
Names = Callable[[str], float | None]  # name -> its number; None: not recorded
_SIGNS: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_COMPARE: dict[type, str] = {ast.Eq: "==", ast.NotEq: "!=", ast.LtE: "<=", ast.GtE: ">="}
_DOES: dict[str, Callable[..., float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
    "min": min,
    "max": max,
    "exp": math.exp,
    "log": lambda a: math.log(a) if a > 0 else math.nan,
}
LISTS = ("count", "sum", "mean")  # what is made of a list
_GAP = re.compile(r"\{([^{}:]+)(?::(\w+))?\}")


class FormulaError(ValueError):
    """A text is no formula. One sentence."""


@lru_cache(1024)
def formula(text: str) -> Formula:
    """The formula in `text`. Raises FormulaError."""
    return _build_formula(_parse_expression(text), text)


@lru_cache(1024)
def relation(text: str) -> tuple[Formula, str, Formula]:
    """Left side, sign ("==", "!=", "<=" or ">=") and right side of the relation in `text`. Raises FormulaError."""
    formula = _parse_expression(text)
    if not isinstance(formula, ast.Compare) or len(formula.ops) != 1 or type(formula.ops[0]) not in _COMPARE:
        raise FormulaError(
            f"{text[:40]!r} is no relation: write two formulas with ==, !=, <= or >= between them."
        )
    return (
        _build_formula(formula.left, text),
        _COMPARE[type(formula.ops[0])],
        _build_formula(formula.comparators[0], text),
    )


@lru_cache(1024)
def sentence(text: str) -> tuple[str | tuple[Formula, str], ...]:
    """`text` in parts: words, and for each {formula} or {formula:form} the formula and its form. Raises FormulaError."""
    parts: list[str | tuple[Formula, str]] = []
    end = 0
    for gap in _GAP.finditer(text):
        if gap[2] not in (None, "g", "of", "n", "p", *"0123456789"):
            raise FormulaError(
                f"{text[:40]!r} writes a number in the form {gap[2][:20]!r}: take g, of, n, p, or a number of places."
            )
        parts += [text[end : gap.start()], (formula(gap[1]), gap[2] or "")]
        end = gap.end()
    return tuple(part for part in [*parts, text[end:]] if part != "")


def evaluate_formula(formula: Formula, names: Names) -> float | None:
    """The number that a formula gives; None if one of its numbers is not recorded, or where there is none."""
    if isinstance(formula, str):
        return names(formula)
    if not isinstance(formula, list):
        return formula
    if formula[0] in ("before", *LISTS):
        return names(f"{formula[0]}({formula[1]})")
    numbers = [evaluate_formula(part, names) for part in formula[1:]]
    if any(x is None for x in numbers):
        return None
    try:
        value = _DOES[formula[0]](*numbers)
    except ArithmeticError:
        return None
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def names_in(formula: Formula) -> Iterator[str]:
    """All names that a formula holds."""
    if isinstance(formula, str):
        yield formula
    elif isinstance(formula, list):
        for part in formula[1:]:
            yield from names_in(part)


def agree(a: float, sign: str, b: float, within: float) -> bool:
    """True if two numbers have a relation. within: a share of the larger one by which they may miss it"""
    near = abs(a - b) <= within * max(1.0, abs(a), abs(b))
    if sign in ("==", "!="):
        return near == (sign == "==")
    return near or (a >= b if sign == ">=" else a <= b)


def _parse_expression(text: str) -> ast.expr:
    try:
        if len(text) > LONGEST:
            raise SyntaxError
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FormulaError(
            f"{text[:40]!r} is no formula: use names, numbers, + - * / **, min, max, exp and log."
        ) from None


def _build_formula(x: ast.expr, text: str) -> Formula:
    if isinstance(x, ast.Constant) and isinstance(x.value, int | float):
        return float(x.value)
    if isinstance(x, ast.Name):
        return x.id
    if isinstance(x, ast.BinOp) and type(x.op) in _SIGNS:
        return [_SIGNS[type(x.op)], _build_formula(x.left, text), _build_formula(x.right, text)]
    if isinstance(x, ast.UnaryOp) and isinstance(x.op, ast.USub):
        return ["-", 0.0, _build_formula(x.operand, text)]
    if isinstance(x, ast.Call) and isinstance(x.func, ast.Name) and not x.keywords and 0 < len(x.args) <= 4:
        name, parts = x.func.id, [_build_formula(part, text) for part in x.args]
        if name in ("before", *LISTS) and len(parts) == 1 and isinstance(parts[0], str):
            return [name, *parts]
        if (name in ("min", "max") and len(parts) > 1) or (name in ("exp", "log") and len(parts) == 1):
            return [name, *parts]
    raise FormulaError(f"{text[:40]!r} is no formula: use names, numbers, + - * / **, min, max, exp and log.")
