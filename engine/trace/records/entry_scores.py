"""Scores: by what entries of a cache were judged when some of them left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Scores:
    """By what a policy that ranks entries let some of them go in this step (level "full"). Of several cuts the last. Of
    several hypotheses there are none: they change places after a cut, and it would be told of what another one holds.

    cut:     float32 [L, H_kv], the threshold of each KV head: the lowest score of those that stayed, protected ones aside.
             What left scored that at most. inf: none stayed for its score; nan: the layer made no cut
    entries: float32 [L, H_kv, n], what each entry was worth right before, by original position: inf where it is protected
             and no score counts, nan where it was not held or the layer made no cut; left out above 524,288 numbers
    lost:    float32 [L, H_kv], the share that what left had of its KV head's column, which `mass` shows; nan as in `cut`
    """

    cut: np.ndarray
    entries: np.ndarray | None = None
    lost: np.ndarray | None = None
