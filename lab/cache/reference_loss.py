"""Reference loss: what the target lost compared with a full cache or with the original model, over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from decodescope.engine.trace.records.reference import ReferenceRecord


class ReferenceLoss:
    """The losses of one run by step, as a reference measured them; None if it has none. `learn` takes the steps in order."""

    def __init__(self) -> None:
        self._steps: list[dict[str, Any] | None] = []

    def learn(self, reference: ReferenceRecord | None) -> None:
        """Record the reference's result for a step."""
        some = reference is not None and reference.drift.size > 0
        self._steps.append(_step_loss(reference) if reference is not None and some else None)

    def of(self, i: int) -> dict[str, Any] | None:
        """The losses of step i, from the full cache's attention on entries that the target no longer held.
        They are shares, mean over the committed rows. `lost`: mean of all heads; `worst`: of the head that lost most, which
        is `head`, [layer, KV head]. `cut`: the share that the last row gave to entries that left in the step, mean over the
        heads, or None. `drift`: mean of the rows, in nats. If the reference is the original model there is only `drift`, and
        the others are None."""
        return self._steps[i]

    def series(self, stretches: Sequence[Sequence[int]]) -> dict[str, list[float | None]]:
        """`lost`, `worst` and `drift`, each the mean over a stretch of steps, None if none of its steps has it.
        Empty for a run without a reference."""
        if not any(self._steps):
            return {}
        lost = any(x and x["lost"] is not None for x in self._steps)
        names = ("lost", "worst", "drift") if lost else ("drift",)
        return {name: [self._mean(name, steps) for steps in stretches] for name in names}

    def _mean(self, name: str, steps: Sequence[int]) -> float | None:
        known = [said[name] for i in steps if (said := self._steps[i]) is not None and said[name] is not None]
        return round(sum(known) / len(known), 6) if known else None


def _step_loss(reference: ReferenceRecord) -> dict[str, Any]:
    drift = round(float(reference.drift.mean(dtype=np.float64)), 6)
    if not reference.lost_mass.size:
        return {"lost": None, "worst": None, "head": None, "cut": None, "drift": drift}
    heads = reference.lost_mass.mean(0, dtype=np.float64)  # [L, H_kv]
    layer, head = np.unravel_index(int(heads.argmax()), heads.shape)
    cut = reference.cut_mass
    return {
        "lost": round(float(heads.mean()), 6),
        "worst": round(float(heads.max()), 6),
        "head": [int(layer), int(head)],
        "cut": None if cut is None or not cut.size else round(float(cut.mean(dtype=np.float64)), 6),
        "drift": drift,
    }
