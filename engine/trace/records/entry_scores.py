"""Scores: by what entries of a cache were judged when some of them left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Scores:
    """The scores by which a policy that ranks entries evicted some of them in this step (level "full"). Of several cuts, the
    last one. Several hypotheses have none: they change places after a cut, so it would describe entries of another one.

    cut:     float32 [L, H_kv], the threshold of each KV head: the lowest score of the entries that stayed, except protected
             ones. Evicted entries scored at most that. inf: none stayed for its score; nan: the layer made no cut
    entries: float32 [L, H_kv, n], what each entry was worth right before, by original position: inf if it is protected, nan if
             it was not held or the layer made no cut; omitted above 524,288 numbers
    lost:    float32 [L, H_kv], the share of the evicted entries in their KV head's column, which `mass` shows; nan as in `cut`
    """

    cut: np.ndarray
    entries: np.ndarray | None = None
    lost: np.ndarray | None = None
