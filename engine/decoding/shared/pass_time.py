"""Pass time: how long a pass takes by its rows and its context; from counts of work, or timed on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import PassShape, pass_cost
from decodescope.engine.cost.pass_curve import PassCurve
from decodescope.engine.cost.roofline import HardwareProfile
from decodescope.engine.model.forward.decoder import Decoder

from .verify_cost import measure_curve


@dataclass(frozen=True)
class LinearPassTime:
    """Time of a pass: fixed + row per token fed + entry per token of context, each in microseconds."""

    fixed: float
    row: float
    entry: float

    def us(self, rows: int, entries: int) -> float:
        """Microseconds of a pass over `rows` tokens on `entries` tokens of context, both summed over the batch."""
        return self.fixed + self.row * rows + self.entry * entries

    @classmethod
    def from_profile(cls, spec: ModelSpec, machine: HardwareProfile) -> LinearPassTime:
        """From counts of work, 16 bits a number: reading the weights, the arithmetic of a token, reading its keys and values;
        nothing overlaps."""
        one = pass_cost(spec, PassShape(1, 0))
        fixed = one.weight_bytes / machine.bandwidth * 1e6 + one.launches * machine.launch_us
        return cls(fixed, one.flops / machine.peak() * 1e6, spec.kv_bytes(1, 2) / machine.bandwidth * 1e6)


@dataclass(frozen=True)
class MeasuredPassTime:
    """Time of a pass by the curve measured on this machine behind 128 entries, whatever its context."""

    curve: PassCurve

    def us(self, rows: int, entries: int) -> float:
        """Microseconds of a pass over `rows` tokens, summed over the batch."""
        return self.curve.time_us(rows)

    @classmethod
    def measure(cls, decoder: Decoder) -> MeasuredPassTime:
        """Of the curve that is kept for this machine, kernels, type and model; it is measured where there is none."""
        return cls(measure_curve(decoder))
