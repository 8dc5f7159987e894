"""Mass: the attention that entries of a cache have drawn, read off the map that a step recorded, whole or thinned."""

from __future__ import annotations

import numpy as np

from decodescope.engine.trace.records.events import CacheChange, ThinnedMass
from decodescope.engine.trace.records.thinned_mass import largest_share


def recorded_mass(change: CacheChange | None) -> np.ndarray | ThinnedMass | None:
    """The map of a change, whole or thinned; None if it has none."""
    if change is None:
        return None
    return change.mass if change.thinned_mass is None else change.thinned_mass


def relative_mass(mass: np.ndarray | ThinnedMass, held: np.ndarray | None = None) -> np.ndarray:
    """float [rows, n]: the attention of each entry of a layer and KV head, as a share of the layer's largest.

    mass: as recorded, whole or thinned; of a thinned map an entry that is not among the heaviest has the mean of its block
    held: bool [rows, n], the entries that are held, which a thinned map does not say
    """
    if isinstance(mass, ThinnedMass):
        spread = mass.relative().reshape(-1, mass.n)
        return spread if held is None else spread * held_columns(held, mass.n)
    return largest_share(mass).reshape(-1, mass.shape[2])


def held_columns(held: np.ndarray, n: int) -> np.ndarray:
    """bool [rows, n] of a mask [rows, m]: cut to n positions, or with none held behind m."""
    return np.pad(held[:, :n], ((0, 0), (0, max(0, n - held.shape[1]))))


def mass_fractions(mass: np.ndarray | ThinnedMass, held: np.ndarray | None = None) -> np.ndarray:
    """float [rows, n]: each entry's part of the attention drawn by the entries that a row holds; arguments as for
    `relative_mass`."""
    worth = relative_mass(mass, held)
    fractions: np.ndarray = worth / np.maximum(worth.sum(1, keepdims=True), 1e-30)
    return fractions


def whole_mass(mass: np.ndarray | ThinnedMass, held: np.ndarray | None = None) -> np.ndarray:
    """uint8 [layers, heads, n]: a map as it was recorded, or a thinned one spread over its positions; `held` as for
    `relative_mass`."""
    if not isinstance(mass, ThinnedMass):
        return mass
    shape = (*mass.means.shape[:2], mass.n)
    return mass.whole(None if held is None else held_columns(held, mass.n).reshape(shape))


def thinning_note(mass: np.ndarray | ThinnedMass | None) -> str:
    """How a thinned map is to be read, in one sentence; "" for a whole one."""
    if not isinstance(mass, ThinnedMass):
        return ""
    exact = mass.heavy.shape[2]
    return f"exact for the {exact} heaviest entries of each head, others show the mean of their {mass.block} positions"
