"""Utilization of a machine by passes: MBU, MFU, attainable over measured, useful over executed.

MBU is counted by the usual rule: weights and cache, no activations. Work is useful if the text kept it. Of a pass that decides,
that is the share of rows whose token was emitted. Drafts, rejected rows and side computations are executed but not useful in
themselves. Plain decoding is useful throughout. No torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from decodescope.engine.core.params import ParamError
from decodescope.engine.trace.records.events import DraftTree, Pass, Step
from decodescope.engine.trace.records.phases import is_deciding_pass

from .operators import Cost
from .passes import PassPricer
from .roofline import ByteRule, HardwareProfile, mbu, mfu

RULE: ByteRule = "weights+kv"  # the bytes that MBU counts


@dataclass(frozen=True)
class Utilization:
    """Some passes together. They add with +.

    cost:   of all;  us: by the clock;  best_us: on their machine at best, each pass the longer of its arithmetic and traffic
    rows:   fed to passes that decide, all sequences together;  tokens: emitted
    useful: FLOPs of the rows that stayed
    """

    cost: Cost = field(default_factory=Cost)
    us: float = 0.0
    best_us: float = 0.0
    rows: int = 0
    tokens: int = 0
    useful: float = 0.0

    def __add__(self, other: Utilization) -> Utilization:
        return Utilization(*(getattr(self, x.name) + getattr(other, x.name) for x in fields(self)))

    @property
    def kept_share(self) -> float | None:
        """Share of the deciding rows whose token was emitted; None if there are no such rows."""
        return self.tokens / self.rows if self.rows else None

    @property
    def useful_share(self) -> float | None:
        """Useful over executed, in FLOPs."""
        return self.useful / self.cost.flops if self.cost.flops and self.rows else None

    @property
    def roofline_share(self) -> float | None:
        """Attainable over measured; None: the machine is not known. Above 1 weights were read from the processor's cache."""
        return self.best_us / self.us if self.us and self.best_us else None

    def record(self, machine: HardwareProfile | None = None, dtype: str | None = None) -> dict[str, Any]:
        """As plain data: the figures, and the shares that follow; those of a machine are None without one."""
        reached, useful = self.roofline_share, self.useful_share
        known = machine is not None and self.us > 0
        return {
            **asdict(self.cost),
            **{name: getattr(self, name) for name in ("us", "best_us", "rows", "tokens", "useful")},
            "kept": self.kept_share,
            "useful_share": useful,
            "reached": reached,
            "efficiency": None if reached is None or useful is None else reached * useful,
            "mbu": mbu(machine, self.cost, self.us, RULE) if known and machine else None,
            "mfu": mfu(machine, self.cost, self.us, dtype) if known and machine else None,
            "rule": RULE,
        }


def step_utilization(prices: PassPricer, step: Step, machine: HardwareProfile | None = None) -> Utilization:
    """Utilization of the passes of a step. A lane whose shape is unknown counts for nothing."""
    ran = [one for one in step.passes if one.lane in prices.specs and prices.bits is not None]
    each = [
        pass_utilization(prices, one, step.draft if is_deciding_pass(one) else None, machine) for one in ran
    ]
    decided = [
        (one.tokens * one.batch, x.cost.flops)
        for one, x in zip(ran, each, strict=True)
        if is_deciding_pass(one)
    ]
    rows, flops = sum(n for n, _ in decided), sum(x for _, x in decided)
    stayed = min(1.0, len(step.emitted) / rows) if rows else 0.0
    text = Utilization(rows=rows, tokens=len(step.emitted) if rows else 0, useful=stayed * flops)
    return sum(each, text)


def pass_utilization(
    prices: PassPricer, one: Pass, draft: DraftTree | None = None, machine: HardwareProfile | None = None
) -> Utilization:
    """What one pass did, whatever became of its rows; `draft`: the tree that it checked."""
    if one.lane not in prices.specs or prices.bits is None:
        return Utilization()
    cost = prices.cost(one, draft)
    return Utilization(cost, one.wall_us, best_us(cost, machine, prices))


def steps_utilization(
    prices: PassPricer, steps: Iterable[Step], machine: HardwareProfile | None = None
) -> Utilization:
    """The steps of a run together."""
    return sum((step_utilization(prices, step, machine) for step in steps), Utilization())


def best_us(cost: Cost, machine: HardwareProfile | None, prices: PassPricer) -> float:
    """The whole-step bound of a pass without launches, in the type of the run; 0: the machine lists no peak for that."""
    if machine is None:
        return 0.0
    try:
        estimate = machine.time_us(cost, prices.dtype)
    except ParamError:
        return 0.0
    return max(estimate.compute_us, estimate.memory_us)
