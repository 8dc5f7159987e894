"""ReferenceRecord: the record of the full cache that a run keeps next to the target's, or of the whole model with one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class ReferenceRecord:
    """What a full cache beside the target's says of a step, where a run keeps one: it reads the same text, in passes that are
    no part of the run's. Times of the step are without them. The model that reads is the target, or the one that the target was
    made of (the header's lane `whole`).

    lost_mass:  float32 [R, L, H_kv], of each of the R committed rows the share of the full cache's attention, mean over the
                query heads of the group, that fell on entries which the target no longer held; a merged one counts as lost. No
                layers where another model reads, whose heads are not the target's
    drift:      float32 [R], of each of them the distance of the target's distribution from the other one: KL(other | target)
                in nats, before the sampler
    said:       int32 [R], behind each of them the token that is likeliest there
    held_bytes: bytes of that cache, which are in no other figure;  wall_us: how long its passes took
    cut_mass:   float32 [L, H_kv], what the last of them gave to the entries that left in this step
    weight_bytes: bytes of weights that are there for these passes alone
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
