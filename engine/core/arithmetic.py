"""Arithmetic: the value of an expression that somebody wrote, and tests that one passes. Nothing is executed."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

EXPRESSION_CHARS = 400
BITS = 4096  # of a number inside an expression

_NAME = re.compile(r"[a-zA-Z_]\w{0,31}", re.ASCII)
_SIGNS = r"[0-9+\-*/%().\s]"


@dataclass(frozen=True)
class ExpressionCase:
    """A test of an expression: with numbers for its `names` its value is `due`."""

    names: Mapping[str, Fraction]
    due: Fraction


def evaluate_expression(text: str, names: Mapping[str, Fraction] | None = None) -> Fraction | None:
    """The value of an arithmetic expression.

    It may have whole and decimal numbers, + - * / // % **, brackets, and the known `names`.

    None if the text is no expression, divides by zero or grows beyond the limits. For an equation the last side counts.
    """
    last = _ascii_signs(text).strip().removesuffix(".").rpartition("=")[2].strip()
    known = names or {}
    letters = "".join(rf"|(?<![\w.]){re.escape(name)}(?!\w)" for name in known)
    if not last or len(last) > EXPRESSION_CHARS or re.fullmatch(rf"(?:{_SIGNS}{letters})+", last) is None:
        return None
    try:
        return _evaluate(ast.parse(last, mode="eval").body, known)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None


def parse_cases(text: str) -> list[ExpressionCase]:
    """Parse test cases, one a line: a value, or "a = 2, b = 3: 8".

    Raises ValueError for a line that is no test case.
    """
    return [_parse_case(line.strip()) for line in text.splitlines() if line.strip()]


def _parse_case(line: str) -> ExpressionCase:
    given, _, due = line.rpartition(":")
    names: dict[str, Fraction] = {}
    for pair in filter(str.strip, given.split(",")):
        name, equals, number = (x.strip() for x in pair.partition("="))
        value = evaluate_expression(number)
        if not equals or _NAME.fullmatch(name) is None or value is None:
            raise ValueError(f"{pair.strip()[:40]!r} gives no name a number, as a = 2 does.")
        names[name] = value
    value = evaluate_expression(due)
    if value is None:
        raise ValueError(f"{due.strip()[:40]!r} is no number or arithmetic.")
    return ExpressionCase(names, value)


def check_cases(said: str, cases: Sequence[ExpressionCase]) -> list[bool]:
    """Which of the tests a text passes."""
    return [evaluate_expression(said, case.names) == case.due for case in cases]


def _ascii_signs(text: str) -> str:
    return text.replace("\u00d7", "*").replace("\u00f7", "/").replace("\u2212", "-")


_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _evaluate(node: ast.expr, names: Mapping[str, Fraction]) -> Fraction:
    """The value of a parsed expression; ValueError for what is no arithmetic or too large."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        value = Fraction(str(node.value))
    elif isinstance(node, ast.Name) and node.id in names:
        value = names[node.id]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        inner = _evaluate(node.operand, names)
        value = -inner if isinstance(node.op, ast.USub) else inner
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, power = _evaluate(node.left, names), _evaluate(node.right, names)
        if power.denominator != 1 or abs(power) * max(1, _bit_length(base)) > BITS:
            raise ValueError("the power is too large")
        value = base ** int(power)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        value = Fraction(
            _OPERATIONS[type(node.op)](_evaluate(node.left, names), _evaluate(node.right, names))
        )
    else:
        raise ValueError("no arithmetic")
    if _bit_length(value) > BITS:
        raise ValueError("the number is too large")
    return value


def _bit_length(x: Fraction) -> int:
    return max(x.numerator.bit_length(), x.denominator.bit_length())
