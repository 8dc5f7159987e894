"""Shares: what a record holds of the distributions at a step's places: their entropy, and the model's own probabilities.

`p` of a trial comes from the sampling distribution, the one after the sampler. Under a greedy sampler it is 1 or 0, and the
record also holds the model distribution, the one before the sampler (`Tops`). Under another sampler it holds the sampling
distribution alone.
"""

from __future__ import annotations

import numpy as np

from ..encoding.forks import header_at
from ..records.events import Header, Step
from ..records.parts import part_description


def sampler_is_greedy(header: Header, step: int) -> bool:
    """True if the sampler of `step` leaves one token."""
    return bool(part_description(header_at(header, step), "sampler").get("greedy"))


class StepProbabilities:
    """One step's distributions by place: -1 the root, else the node before. Whatever was not recorded is None."""

    def __init__(self, header: Header, step: Step):
        self.tops, self.greedy = step.tops, sampler_is_greedy(header, step.step)
        places = [] if step.tops is None else step.tops.places.tolist()
        self.rows = {place: row for row, place in reversed([*enumerate(places)])}

    def entropy(self, place: int) -> float | None:
        """Entropy in nats: of the model distribution under a greedy sampler, else of the sampling distribution."""
        row = self.rows.get(place)
        return None if row is None or self.tops is None else float(self.tops.entropy[row])

    def model(self, place: int, token: int) -> float | None:
        """The share of `token` in the model distribution. It is known under a greedy sampler, of the tokens that were tried
        and of the likeliest."""
        row = self.rows.get(place)
        if row is None or self.tops is None or not self.greedy:
            return None
        at = np.flatnonzero(self.tops.ids[row] == token)
        return float(self.tops.p[row, at[0]]) if len(at) else None
