"""Priced schedule: weighs what a longer draft brings against the time of the passes that it takes."""

from __future__ import annotations

from decodescope.engine.core.component import component, param
from decodescope.engine.cost.hardware import DEVICES
from decodescope.engine.model.forward.decoder import Decoder

from ..bases.schedule import Schedule
from .pass_time import LinearPassTime, MeasuredPassTime

PassTime = LinearPassTime | MeasuredPassTime
COPYING = LinearPassTime(0.0, 0.0, 0.0)  # a token that is copied from text costs no pass


@component
class PricedSchedule(Schedule):
    """Base of schedules that know how long a step takes.

    The batch is simulated: one text is decoded, with the times of a server that decodes `batch` such texts of its length at
    once. From the models' shapes and a machine's published peaks, t(rows) = fixed + row * rows + entry * context. With
    `machine` here t(rows) is the curve measured on this machine through the kernels in use, and then runs differ.
    """

    batch: int = param(
        1,
        low=1,
        high=4096,
        unit="texts",
        help="simulated batch size; all texts of the batch share every pass",
    )
    machine: str = param(
        "a100-80g",
        choices=("here", *DEVICES),
        help="hardware whose pass times are assumed; here: times measured on this machine",
    )
    max_draft_tokens: int = param(8, low=1, high=64, unit="tokens", help="maximum length of a draft (K)")

    def pass_time(self, decoder: Decoder) -> PassTime:
        """How long passes of `decoder` take on the chosen machine; measured if that is this one and nobody did before."""
        if self.machine == "here":
            return MeasuredPassTime.measure(decoder)
        return LinearPassTime.from_profile(decoder.spec, DEVICES[self.machine])

    def step_times(self, target: PassTime, draft: PassTime, context: int) -> list[float]:
        """Microseconds of a step with k = 0, 1, ..., `max_draft_tokens` drafted tokens per text, for texts of `context`
        tokens."""
        entries = self.batch * context
        return [
            target.us(self.batch * (k + 1), entries) + k * draft.us(self.batch, entries)
            for k in range(self.max_draft_tokens + 1)
        ]
