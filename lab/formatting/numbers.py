"""Saying: numbers and tokens inside the sentences of an explanation."""

from __future__ import annotations


def f(x: float, digits: int = 4) -> str:
    """A number with `digits` significant figures."""
    return f"{x:.{digits}g}"


def per_hundred(x: float) -> str:
    """A probability as cases of a hundred."""
    return f"{f(100 * x, 3)} of 100 cases"


def quote_token(token: str) -> str:
    """A token inside a sentence."""
    return f"“{token}”"


def guesses_phrase(n: int) -> str:
    """Some guesses, and what was done to them follows."""
    return "One guess was" if n == 1 else f"{n} guesses were"
