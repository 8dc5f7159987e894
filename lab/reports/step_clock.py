"""Step clock: what a step of the recorded runs takes, and what one of another size would."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.roles import TARGET
from decodescope.engine.cost.cost import DTYPE_BITS, PassShape, pass_cost, pass_ops
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.cost.pass_curve import recorded_curve
from decodescope.engine.cost.passes import spec_of
from decodescope.engine.trace import Header

SEEN = 20  # passes of one size needed for their median to count as measured


class CutTree(NamedTuple):
    """A draft without the guesses behind the first few of each place: its nodes, its depth, and its accepted tokens."""

    nodes: int
    depth: int
    path: int


class StepCost(NamedTuple):
    """One step, as far as its cost depends on the draft. depth: of the draft, 0 without one; nodes: per level, from 1
    passes: whether the draft took its own forward passes;  path: accepted tokens;  rows: read by the target
    widths: the draft with at most 1, 2, ... guesses at a place, until it is whole; empty without a draft"""

    depth: int
    nodes: tuple[int, ...]
    path: int
    rows: int
    passes: bool
    draft_us: float
    verify_us: float
    rest_us: float
    widths: tuple[CutTree, ...] = ()


class DepthCounts(NamedTuple):
    """Places at one depth: where a guess was tried, where one was accepted, and where the first one was."""

    tested: int
    accepted: int
    first: int


@dataclass
class AdviceData:
    """The evidence from the runs, gathered for the advice. rates: by depth, from 1
    rescue: the chance of a second guess, for each place at depth 1 with a single, rejected guess
    agree, overlap: for each place with both distributions: whether their likeliest tokens are equal, and the sum of min(p, q)
    looked_up: (steps, tokens, rows of a pass -> how many) that prompt lookup would have needed for the same texts
    """

    cycles: list[StepCost] = field(default_factory=list)
    rates: list[DepthCounts] = field(default_factory=list)
    rescue: list[float] = field(default_factory=list)
    agree: list[bool] = field(default_factory=list)
    overlap: list[float] = field(default_factory=list)
    looked_up: tuple[int, int, Counter[int]] = field(default_factory=lambda: (0, 0, Counter()))
    held: list[int] = field(default_factory=list)


class Clock:
    """The duration of a step: measured where such passes occurred, elsewhere scaled by the machine's measured curve, else by
    the cost model.

    Raises ValueError if no time was recorded.
    """

    def __init__(self, header: Header, seen: AdviceData):
        cycles = seen.cycles
        times: dict[int, list[float]] = {}
        for x in cycles:
            times.setdefault(x.rows, []).append(x.verify_us)
        usual = {max(times, key=lambda n: len(times[n]))} if times else set()
        self.seen = {
            n: statistics.median(x) for n, x in times.items() if n > 0 and (n in usual or len(x) >= SEEN)
        }
        if not self.seen or min(self.seen.values()) <= 0:
            raise ValueError("no time was recorded")
        self.rest = statistics.median(x.rest_us for x in cycles)
        drafts = [x for x in cycles if x.depth]
        self.by_level = any(x.passes for x in drafts)
        spent = [x.draft_us / x.depth if self.by_level else x.draft_us for x in drafts]
        self.each = statistics.median(spent) if spent else 0.0
        self.curve = recorded_curve(header.pass_us, TARGET)
        self.held = int(statistics.median(seen.held)) if seen.held else 0
        self._read_models(header)

    def _read_models(self, header: Header) -> None:
        """Read the shape of the target and the machine, if the header records them."""
        self.spec = self.profile = None
        self.bits, self.dtype = DTYPE_BITS.get(header.dtype, 16), header.dtype
        try:
            self.spec = spec_of(header.model)
            if header.machine is not None:
                self.profile = HardwareProfile.from_record(header.machine)
                self.profile.peak(self.dtype)
        except Refusal:  # a header without the shape, or without a machine for this type of numbers
            self.profile = None

    @property
    def source(self) -> str:
        """The source of the times of passes of other sizes, in words."""
        sizes = ", ".join(map(str, sorted(self.seen)))
        if self.curve:
            how = "the measured cost of passes by their rows"
        elif self.profile:
            how = "the roofline of the machine"
        elif self.spec:
            how = "the bytes that they move"
        else:
            how = "nothing: equal"
        return (
            f"passes over {sizes} tokens as measured, between them in proportion, other sizes scaled by {how}"
        )

    def verify_us(self, rows: float) -> float:
        """Microseconds of the target's pass over `rows` tokens, including the rule that decides on them."""
        low = math.floor(rows)
        return (
            self._pass_us(low)
            if low == rows
            else self._pass_us(low) * (low + 1 - rows) + self._pass_us(low + 1) * (rows - low)
        )

    def _pass_us(self, rows: int) -> float:
        below = max((n for n in self.seen if n <= rows), default=None)
        above = min((n for n in self.seen if n >= rows), default=None)
        if below is not None and above is not None:
            share = 0.0 if above == below else (rows - below) / (above - below)
            return self.seen[below] * (1 - share) + self.seen[above] * share
        near = above if below is None else below
        assert near is not None, "one size at least was measured"
        if self.curve is not None and self.curve.covers(max(rows, near)):
            return self.seen[near] * self.curve.time_us(rows) / self.curve.time_us(near)
        return self.seen[near] * self._model_estimate(rows) / self._model_estimate(near)

    def _model_estimate(self, rows: int) -> float:
        """The relative cost of a pass over `rows` tokens: time by the roofline, else bytes, else 1."""
        if self.spec is None:
            return 1.0
        bits = self.bits
        shape = PassShape(rows, self.held, logits=rows, weight_bits=bits, act_bits=bits, kv_bits=bits)
        if self.profile is None:
            return float(pass_cost(self.spec, shape).bytes)
        return self.profile.time_us(pass_ops(self.spec, shape), self.dtype).us

    def step_us(self, rows: float, levels: float) -> float:
        """Microseconds of a step with a draft of `levels` levels and a pass over `rows` tokens."""
        return self.verify_us(rows) + self.rest + self.draft_us(levels)

    def draft_us(self, levels: float) -> float:
        """Microseconds of a draft: a constant per level if it takes its own passes, else the same for any length."""
        return self.each * levels if self.by_level else self.each * (levels > 0)
