"""Deployed clock: what steps would take on a machine of the list, with several texts decoded at a time, by the cost model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from decodescope.engine.core.params import ParamError
from decodescope.engine.core.roles import DRAFTS
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import DTYPE_BITS, PassShape, pass_ops
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.cost.passes import spec_of
from decodescope.engine.trace import Header, TraceError

from .step_clock import AdviceData, Clock


@dataclass(frozen=True)
class Deployment:
    """Where a method shall run. machine: it;  sequences: texts whose passes are one"""

    machine: HardwareProfile
    sequences: int = 1

    @property
    def words(self) -> str:
        """It, in words."""
        texts = "one text" if self.sequences == 1 else f"{self.sequences} texts"
        return f"{self.machine.name}, {texts} at a time"


class DeployedClock(Clock):
    """Passes cost what the cost model says of that machine; what lies between passes costs nothing.

    A draft model's passes are priced by its own shape. Drafts of heads cost the share of a target's pass over one token that
    they cost where they were recorded; this is unknown, and 0, if no such pass was.

    Raises ValueError if the header records no shape of the target, or no time.
    """

    def __init__(self, header: Header, seen: AdviceData, deployment: Deployment):
        super().__init__(header, seen)
        if self.spec is None:
            raise ValueError("no shape was recorded")
        recorded = self.each / super()._pass_us(1)
        self.deployment, self.profile = deployment, deployment.machine
        self.rest = 0.0
        try:
            deployment.machine.peak(self.dtype)
        except ParamError:  # such a machine computes in another type
            self.dtype = next(iter(cast("Mapping[str, float]", deployment.machine.peak_flops)))
            self.bits = DTYPE_BITS.get(self.dtype, 16)
        self.draft_spec = self._read_draft(header)
        if self.draft_spec is None:
            self.each = recorded * self._pass_us(1)
        else:
            self.each = self._price(self.draft_spec, 1)

    def _read_draft(self, header: Header) -> ModelSpec | None:
        """The shape of the model that drafts by passes of its own; None if there is none, or none is recorded."""
        role = next((x for x in DRAFTS if x in header.lanes), None)
        try:
            return None if role is None or not self.by_level else spec_of(header.lanes[role])
        except TraceError:
            return None

    def _pass_us(self, rows: int) -> float:
        assert self.spec is not None
        return self._price(self.spec, rows)

    def _price(self, spec: ModelSpec, rows: int) -> float:
        """Microseconds of a pass over `rows` tokens of each text."""
        bits = self.bits
        shape = PassShape(
            rows,
            self.held,
            batch=self.deployment.sequences,
            logits=rows,
            weight_bits=bits,
            act_bits=bits,
            kv_bits=bits,
        )
        return self.deployment.machine.time_us(pass_ops(spec, shape), self.dtype).us

    @property
    def source(self) -> str:
        """Where the times come from, in words."""
        drafts = (
            "a draft pass by the draft model's shape"
            if self.draft_spec is not None
            else "a draft by its recorded share of a target's pass"
        )
        return (
            f"Priced for {self.deployment.words}, in {self.dtype}, by the cost model, not measured: each pass takes the "
            f"longer of arithmetic and traffic, over {self.held} entries held in each text; {drafts}; no time between passes."
        )
