"""Pass costs: what a step and its check took in passes over one row, in words, for the time lane and the roofline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from decodescope.engine.core.activity import count_noun
from decodescope.engine.core.roles import TARGET
from decodescope.engine.cost.pass_curve import recorded_curve
from decodescope.engine.trace.records.events import Header, Step
from decodescope.engine.trace.records.phases import DECIDES


class PassCostEncoder:
    """By the measured curve of the target's passes, which the header may keep; without it nothing is added."""

    def __init__(self, header: Header):
        self._curve = recorded_curve(header.pass_us, TARGET)

    def encode_step(self, step: Step) -> dict[str, str]:
        """`cost`: how many passes over one row fit into the time of the step, in words that follow others."""
        if self._curve is None or step.wall_us <= 0:
            return {}
        tokens, passes = count_noun(len(step.emitted), "token"), step.wall_us / self._curve.time_us(1)
        return {"cost": f"; {tokens} in the time of {passes:.2f} plain passes"}

    def add_costs(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add to the target's deciding passes of several rows `cost`: the passes over one row that take as long, in words."""
        for row in rows:
            each = row["rows"] / row["n"]
            decides = row["lane"] == TARGET and row["phase"] in DECIDES
            if self._curve is not None and decides and each > 1 and self._curve.covers(each):
                row["cost"] = f" (cost of {self._curve.ratio(each):.2f} rows)"
