"""Speed curve: what the recorded acceptance brings at every draft length and tree width, by the cost of passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .step_clock import AdviceData, Clock, DepthCounts

ENOUGH = 30  # tests needed to extrapolate a share beyond the deepest draft
LONGEST = 24
NEAR = 0.98  # of the best speed, from which a shorter draft is as good


class SpeedPoint(NamedTuple):
    """Drafts of one length: tokens per step, its microseconds, and its speed relative to the present one.
    over_plain: relative to plain decoding;  perfect: the same, if a chain of this length were always right"""

    length: int
    tokens: float
    step_us: float
    gain: float
    over_plain: float
    perfect: float


class WidthPoint(NamedTuple):
    """The recorded trees with at most `width` guesses at a place: their nodes, tokens per step, its microseconds, and its speed
    relative to plain decoding."""

    width: int
    nodes: float
    tokens: float
    step_us: float
    over_plain: float


@dataclass
class SpeedCurves:
    """lengths: speed by draft length, from 0 (plain decoding);  widths: by tree width, empty where no branches can be judged
    sentences: where the best length and width lie, the limits, and what the record cannot say
    clock: what steps take, for curves over the same texts (lab/reports/oracle.py)
    """

    lengths: list[SpeedPoint] = field(default_factory=list)
    widths: list[WidthPoint] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    clock: Clock | None = field(default=None, repr=False, compare=False)


def measure_speed(seen: AdviceData, clock: Clock, path: str) -> SpeedCurves:
    """The curves of these runs.

    path: how the acceptance rule settles a draft (`Telling.path`). Only a "walk" tries the guesses of a place one by one, so
    that fewer guesses at a place change nothing for those before.
    """
    lengths, widths = speed_by_length(seen, clock), speed_by_width(seen, clock) if path == "walk" else []
    deep = max(x.depth for x in seen.cycles)
    sentences = [*_length_sentences(lengths, deep, clock), *_width_sentences(seen, widths, path)]
    return SpeedCurves(lengths, widths, sentences, clock)


def speed_by_length(seen: AdviceData, clock: Clock) -> list[SpeedPoint]:
    """Speed by the depth at which drafts end, from 0 (plain decoding) to twice the present one.
    It ends at the present one if there are too few tests to extrapolate."""
    deep = max(x.depth for x in seen.cycles)
    longest = min(2 * deep + 2, LONGEST) if sum(x.tested for x in seen.rates) >= ENOUGH else deep
    raw = [(n, *_cost_at_length(n, deep, seen, clock)) for n in range(max(longest, deep) + 1)]
    _, now, us = raw[deep]
    plain = clock.step_us(1, 0)
    return [
        SpeedPoint(
            length=n,
            tokens=tokens,
            step_us=step,
            gain=tokens / step / (now / us),
            over_plain=tokens / step * plain,
            perfect=(n + 1) / clock.step_us(n + 1, n) * plain,
        )
        for n, tokens, step in raw
    ]


def _cost_at_length(n: int, deep: int, seen: AdviceData, clock: Clock) -> tuple[float, float]:
    """(tokens per step, microseconds) with drafts of at most `n` levels, if the present ones have up to `deep`."""
    cycles = seen.cycles
    count = len(seen.cycles)
    within = min(n, deep)
    more = max(0, n - deep)
    reached = [sum(x.path >= k for x in cycles) / count for k in range(1, within + 1)]
    rows = 1 + sum(sum(x.nodes[:within]) for x in cycles) / count
    levels = sum(min(x.depth, within) for x in cycles) / count
    whole = sum(x.depth == deep for x in cycles) / count
    last = sum(x.nodes[deep - 1] for x in cycles if x.depth == deep) / count
    share = deepest_acceptance(seen.rates)
    carried = sum(reached[-1] * share**j for j in range(1, more + 1)) if reached else 0.0
    return 1 + sum(reached) + carried, clock.step_us(rows + more * last, levels + more * whole)


def deepest_acceptance(rates: Sequence[DepthCounts]) -> float:
    """The accepted share at the deepest places, as many as necessary for 30 tests."""
    tested = accepted = 0
    for rate in reversed(rates):
        tested, accepted = tested + rate.tested, accepted + rate.accepted
        if tested >= ENOUGH:
            break
    return accepted / tested if tested else 0.0


def speed_by_width(seen: AdviceData, clock: Clock) -> list[WidthPoint]:
    """Speed of the recorded trees without the guesses behind the first 1, 2, ... of each place; empty for chains."""
    widest = max((len(x.widths) for x in seen.cycles), default=0)
    if widest < 2:
        return []
    plain, count = clock.step_us(1, 0), len(seen.cycles)
    points = []
    for width in range(1, widest + 1):
        cut = [x.widths[min(width, len(x.widths)) - 1] for x in seen.cycles if x.widths]
        nodes = sum(x.nodes for x in cut) / count
        tokens = 1 + sum(x.path for x in cut) / count
        us = clock.step_us(1 + nodes, sum(x.depth for x in cut) / count)
        points.append(WidthPoint(width, nodes, tokens, us, tokens / us * plain))
    return points


def best_length(lengths: Sequence[SpeedPoint]) -> SpeedPoint:
    """The length with the highest speed."""
    return max(lengths, key=lambda x: x.gain)


def _length_sentences(lengths: Sequence[SpeedPoint], deep: int, clock: Clock) -> list[str]:
    best, now = best_length(lengths), lengths[deep]
    beyond = " That is beyond the deepest draft seen." if best.length > deep else ""
    if best.length:
        lines = [
            f"Best length: {best.length}, {best.over_plain:.2f} times as fast as plain decoding; the present one, {deep}, has "
            f"{now.over_plain:.2f}.{beyond}"
        ]
    else:
        lines = [
            f"Best length: 0, no draft. The present one, {deep}, is {now.over_plain:.2f} times as fast as that."
        ]
    near = next(x for x in lengths if x.over_plain >= NEAR * best.over_plain)
    if near.length != best.length:
        lines.append(f"From {near.length} on it is within {1 - NEAR:.0%} of that speed.")
    top = max(lengths, key=lambda x: x.perfect)
    plain = clock.step_us(1, 0)
    free = max((x.length + 1) / clock.step_us(x.length + 1, 0) * plain for x in lengths)
    lines.append(
        f"A draft that is always right would be {top.perfect:.2f} times as fast as plain decoding, at length {top.length}; "
        f"{free:.2f} times if it took no time. Lengths above {lengths[-1].length} were not looked at."
    )
    return lines


def _width_sentences(seen: AdviceData, widths: Sequence[WidthPoint], path: str) -> list[str]:
    if path != "walk":
        return ["Tree sizes: unknown, since this acceptance rule decides on all guesses of a place together."]
    if not widths:
        return [
            "Tree sizes: unknown, since no draft had a second guess at a place. Record a tree to see them."
        ]
    best = max(widths, key=lambda x: x.over_plain)
    guesses = "1 guess" if best.width == 1 else f"{best.width} guesses"
    return [
        f"Best tree: at most {guesses} at a place, {best.over_plain:.2f} times as fast as plain decoding. Wider trees than "
        f"{widths[-1].width}, and other shapes with as many nodes, cannot be judged: their guesses were never tried."
    ]
