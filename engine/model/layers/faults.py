"""Faults: errors that end a run, and the check that logits are finite."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from decodescope.engine.trace.records.events import EndReason


class EngineFault(RuntimeError):
    """A run cannot go on. `reason` is the end reason of its trace; the message is one sentence for people."""

    def __init__(self, reason: EndReason, message: str):
        super().__init__(message)
        self.reason: EndReason = reason


def row_maxima(logits: Tensor) -> tuple[Tensor | np.ndarray, list[int]]:
    """The largest value of each row of logits float [B, R, V], as [B, R], and its index for the first sequence (the first of
    equal ones). A row with a NaN gives NaN. On the CPU numpy does it, in a tenth of torch's time."""
    if logits.device.type == "cpu":
        z = logits.numpy()
        rows = z.reshape(-1, z.shape[2])
        best = rows.argmax(1)  # a NaN counts as the largest
        return rows[np.arange(len(rows)), best].reshape(z.shape[:2]), best[: z.shape[1]].tolist()
    peak, best = logits.max(-1)
    return peak, best[0].tolist()


def not_finite_reason(peak: Tensor | np.ndarray, where: str) -> EngineFault | None:
    """The fault in the logits of a pass; None: there is none. peak: the largest of each row, float [B, rows]."""
    for row, value in enumerate(peak.flatten().tolist()):
        if not math.isfinite(value):
            return EngineFault(
                "non_finite_logits",
                f"Row {row} of {where} has no finite logits (largest: {value}); the weights are damaged or the type overflows: "
                "try float32.",
            )
    return None


def require_finite(logits: Tensor, where: str) -> Tensor:
    """The same logits, float [..., V], of an exit or a draft head: no pass of a lane ends with them, which would be looked at.
    Raises EngineFault with reason "non_finite_logits" if a row has NaN, +inf, or nothing but -inf."""
    z = logits.detach()
    fault = not_finite_reason(z.numpy().max(-1) if z.is_cpu else z.amax(-1), where)
    if fault is not None:
        raise fault
    return logits
