"""A map of attention mass that was thinned keeps the heaviest entries and the sums of all others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decodescope.engine.trace import TraceError
from decodescope.engine.trace.records.events import CacheChange
from decodescope.engine.trace.records.thinned_mass import (
    SHADES,
    ThinnedMass,
    largest_share,
    thin_mass,
    validate_thinned,
)
from decodescope.lab.cache.mass import mass_fractions, thinning_note, whole_mass
from decodescope.lab.wire.cache import MAP, encode_cache_maps

ROOM = 1 << 14
SHAPES = [(30, 3, 183), (30, 3, 2048), (3, 2, 9000), (28, 8, 777)]


def drawn(shape: tuple[int, int, int], evicted: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Shares as attention has them, a few entries far above the others, and which entries are held."""
    rng = np.random.default_rng(sum(shape))
    held = rng.random(shape) >= evicted
    mass = rng.pareto(1.2, shape) * held
    return mass / mass.max((1, 2), keepdims=True), held


@pytest.mark.parametrize("shape", SHAPES)
def test_a_thinned_map_has_room_keeps_the_heaviest_and_the_sums(shape: tuple[int, int, int]) -> None:
    shares, held = drawn(shape)
    thinned = thin_mass(shares, held, ROOM)
    assert thinned is not None and shares.size > ROOM
    numbers = thinned.heavy.size + thinned.shares.size + thinned.means.size
    assert ROOM * 0.8 < numbers <= ROOM, "the room is used"
    kept = thinned.heavy.shape[2]
    best = np.sort(np.argsort(-shares, axis=2, kind="stable")[..., :kept], axis=2)
    assert kept > 5 and (thinned.heavy == best).all()
    exact = np.floor(1 + SHADES * np.sqrt(np.take_along_axis(shares, best, 2)))
    assert (thinned.shares == exact).all(), "each is written as a whole map writes it"
    spread = thinned.relative(held)
    assert spread.shape == shape and not spread[~held].any()
    others = held.copy()
    np.put_along_axis(others, best, False, 2)
    # half a shade of the scale at the largest mean, in each block: what is due within it, summed over a row
    assert np.allclose((spread * others).sum(2), (shares * others).sum(2), rtol=0.02)
    first = slice(0, thinned.block)
    means = (shares * others)[..., first].sum(2) / np.maximum(others[..., first].sum(2), 1)
    scale = thinned.largest[:, None]
    off = np.abs(np.sqrt(largest_share(thinned.means[..., 0])) - np.sqrt(means / scale))
    assert (off[others[..., first].any(2)] <= 0.5 / SHADES + 1e-6).all()


def test_where_few_are_held_all_of_them_are_exact() -> None:
    shares, held = drawn((30, 3, 2048), evicted=0.99)
    thinned = thin_mass(shares, held, ROOM)
    assert thinned is not None and held.sum(2).max() == thinned.heavy.shape[2] < 60
    assert not thinned.means.any() and ((thinned.heavy >= 0).sum(2) == held.sum(2)).all()
    assert (thinned.whole() > 0).sum() == held.sum(), "nothing is shown where nothing is held"
    assert np.allclose(thinned.relative(), shares, atol=2 / SHADES)


def test_parts_of_the_attention_and_the_picture_come_from_the_thinned_map() -> None:
    shares, held = drawn((30, 3, 2048))
    thinned = thin_mass(shares, held, ROOM)
    assert thinned is not None
    rows = held.reshape(90, -1)
    parts, due = mass_fractions(thinned, rows), shares.reshape(90, -1)
    due = due / due.sum(1, keepdims=True)
    best = np.take_along_axis(shares.reshape(90, -1), parts.argmax(1)[:, None], 1)[:, 0]
    off = np.sqrt(shares.reshape(90, -1).max(1)) - np.sqrt(best)
    assert np.allclose(parts.sum(1), 1) and (off <= 1 / SHADES).all(), "within a shade of the heaviest"
    clear = (
        shares.reshape(90, -1).max(1) > 0.05
    )  # else a shade of the layer's scale is a large part of the entry
    assert clear.sum() > 60 and np.allclose(parts.max(1)[clear], due.max(1)[clear], rtol=0.05)
    shown = whole_mass(thinned, rows)
    assert ((shown > 0) == held).all() and f"the {thinned.heavy.shape[2]} heaviest" in thinning_note(thinned)
    sent = encode_cache_maps(CacheChange("target", 1, 2048, 1, 1, thinned_mass=thinned))
    assert set(sent) == {"mass", "thinned"}


def test_a_large_map_is_sent_as_stretches_whose_length_the_page_finds_by_division() -> None:
    import base64

    for n in (728, 729, 1500, 2048, 4001):
        shares, held = drawn((30, 3, n))
        thinned = thin_mass(shares, held, ROOM)
        assert thinned is not None
        whole = thinned.whole().reshape(90, -1)
        sent = encode_cache_maps(CacheChange("target", 1, n, 1, 1, thinned_mass=thinned))["mass"]
        found = np.frombuffer(base64.b64decode(sent), np.uint8).reshape(90, -1)
        assert found.size <= MAP
        long = -(-n // found.shape[1])  # as massAt of the page divides
        due = [whole[:, p : p + long].max(1) for p in range(0, n, long)]
        assert (found == np.stack(due, 1)).all()


def good() -> ThinnedMass:
    """A small thinned map that fits together."""
    shares, held = drawn((2, 2, 40))
    thinned = thin_mass(shares, held, 64)
    assert thinned is not None
    return thinned


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 1 << 40}, "positions in all"),
        ({"block": 0}, "a block for each"),
        ({"n": 39, "block": 1}, "a block for each|heavy"),
        ({"largest": np.ones(3, np.float32)}, "3 numbers for 2 layers"),
        ({"largest": np.full(2, 7, np.float32)}, "largest"),
        ({"shares": np.ones((2, 2, 1), np.uint8)}, "without shares"),
        ({"heavy": np.full((2, 2, 1), 40, np.int32), "shares": np.ones((2, 2, 1), np.uint8)}, "heavy"),
    ],
)
def test_a_thinned_map_whose_parts_do_not_fit_is_refused(change: dict, words: str) -> None:
    validate_thinned(good(), "it")
    with pytest.raises(TraceError, match=words):
        validate_thinned(replace(good(), **change), "it")


def test_more_heads_than_room_have_no_map() -> None:
    shares, held = drawn((40, 10, 8))
    assert thin_mass(shares, held, 799) is None and thin_mass(shares, held, 800) is not None
