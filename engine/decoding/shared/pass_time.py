"""Pass time: how long a pass takes, as a line in its rows and its context; from counts of work, or timed on this machine."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import PassShape, pass_cost
from decodescope.engine.cost.roofline import HardwareProfile
from decodescope.engine.model.forward.decoder import Decoder

from .verify_cost import verify_costs

ROWS = (1, 2, 4, 8, 16)  # of the passes that are timed on this machine


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

    @classmethod
    def measure(cls, decoder: Decoder) -> LinearPassTime:
        """Least-squares fit of passes timed on this machine; the context's share is the one measured at 128 entries."""
        us = torch.tensor(verify_costs(decoder, ROWS), dtype=torch.float64)
        rows = torch.tensor(ROWS, dtype=torch.float64)
        slope = float(((rows - rows.mean()) * (us - us.mean())).sum() / (rows - rows.mean()).square().sum())
        slope = max(slope, 0.0)
        return cls(max(float(us.mean()) - slope * float(rows.mean()), 0.0), slope, 0.0)
