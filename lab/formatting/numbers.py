"""Numbers: format numbers and tokens for the sentences of an explanation."""

from __future__ import annotations


def f(x: float, digits: int = 4) -> str:
    """A number with `digits` significant figures."""
    return f"{x:.{digits}g}"


def per_hundred(x: float) -> str:
    """A probability as cases out of a hundred."""
    return f"{f(100 * x, 3)} of 100 cases"


def quote_token(token: str) -> str:
    """A token inside a sentence."""
    return f"“{token}”"


def guesses_phrase(n: int) -> str:
    """A subject phrase for some guesses; the verb follows."""
    return "One guess was" if n == 1 else f"{n} guesses were"
