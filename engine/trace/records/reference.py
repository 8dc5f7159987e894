"""ReferenceRecord: the record of the full cache that a run keeps next to the target's, or of the whole model with one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class ReferenceRecord:
    """What a reference run found in a step: a full cache that reads the same text, in passes that are not part of the run.
    Times of the step exclude them. The model that reads is the target, or the original model of the target (the header's lane
    `whole`).

    lost_mass:  float32 [R, L, H_kv], for each of the R committed rows the share of the full cache's attention, mean over the
                query heads of the group, on entries that the target no longer held; a merged one counts as lost. No layers if
                another model reads, because its heads are not the target's
    drift:      float32 [R], for each of them the distance of the target's distribution from the other one: KL(other | target)
                in nats, before the sampler
    said:       int32 [R], after each of them the likeliest token
    held_bytes: bytes of that cache, which no other figure includes;  wall_us: how long its passes took
    cut_mass:   float32 [L, H_kv], attention of the last row to the entries that were evicted in this step
    weight_bytes: bytes of weights that are loaded for these passes only
    """

    lost_mass: np.ndarray
    drift: np.ndarray
    said: np.ndarray
    held_bytes: int
    wall_us: float
    cut_mass: np.ndarray | None = None
    weight_bytes: int = 0

    @property
    def ids(self) -> list[int]:
        """`said`, as whole numbers."""
        return [int(x) for x in self.said]
