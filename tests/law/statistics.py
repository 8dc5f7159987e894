"""Tests of counts against a distribution: chi-square with pooling, and the distance that a sample can rule out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

Text = tuple[int, ...]
RARE = 4.7534  # z of an alarm with probability one in a million
ONE_PERCENT = 2.3263


def chi_square(counts: Mapping[Text, int], law: Mapping[Text, float]) -> tuple[float, int]:
    """(X2, degrees of freedom): sum (O - E)^2 / E over cells with E >= 5, the others pooled into one."""
    n = sum(counts.values())
    x2, rest_o, rest_e, cells = 0.0, 0, 0.0, 0
    for text, p in law.items():
        observed, expected = counts.get(text, 0), n * p
        if expected >= 5:
            x2, cells = x2 + (observed - expected) ** 2 / expected, cells + 1
        else:
            rest_o, rest_e = rest_o + observed, rest_e + expected
    if rest_e >= 5:
        x2, cells = x2 + (rest_o - rest_e) ** 2 / rest_e, cells + 1
    return x2, cells - 1


def critical(df: int, z: float) -> float:
    """The value that chi-square of `df` exceeds as often as a normal variable exceeds z (Wilson, Hilferty 1931)."""
    return df * (1 - 2 / (9 * df) + z * math.sqrt(2 / (9 * df))) ** 3


def heads(law: Mapping[Text, float], depth: int) -> dict[Text, float]:
    """The distribution, or the counts, of the first `depth` tokens."""
    made: dict[Text, float] = defaultdict(float)
    for text, p in law.items():
        made[text[:depth]] += p
    return dict(made)


def total_variation(counts: Mapping[Text, int], law: Mapping[Text, float]) -> float:
    """1/2 sum |O / N - P|."""
    n = sum(counts.values())
    return sum(abs(counts.get(text, 0) / n - p) for text, p in law.items()) / 2


def alarms(counts: Mapping[Text, int], law: Mapping[Text, float], z: float = RARE) -> list[str]:
    """The evidence against the counts coming from `law`, in words."""
    found = [
        f"{text} came {n} times and cannot" for text, n in counts.items() if n and not law.get(text, 0.0) > 0
    ]
    for depth in range(1, max(map(len, law)) + 1):
        x2, df = chi_square(heads(counts, depth), heads(law, depth))  # type: ignore[arg-type] # whole numbers as floats
        if df > 0 and x2 > critical(df, z):
            found.append(
                f"first {depth} tokens: X2 = {x2:.1f} > {critical(df, z):.1f} at {df} degrees of freedom"
            )
    return found
