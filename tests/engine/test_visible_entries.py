"""What a row sees of the committed entries: all, those before it in the text, or a choice; commits come in any order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import toys
from brute import brute

from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache

FIRST, LATER = [0, 2, 4, 7], [1, 3, 8]  # places that are committed, and those that are read afterwards
TOKENS, PLACES = [3, 1, 4, 1, 5, 9, 2], FIRST + LATER
n, T = len(FIRST), len(LATER)
SPECS = {"full": toys.toy_spec(heads=()), "windowed": toys.toy_spec(heads=(), windows=(3, None, 4))}
CHOICE = torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1]], dtype=torch.bool)[None]


def begun(spec: ModelSpec) -> tuple[Any, KVCache]:
    """A decoder, and a cache that has read the first places in one pass."""
    decoder = toys.decoder(spec, toys.LIVELY, torch.float64)
    cache = KVCache(spec, dtype=torch.float64)
    cache.track_positions()
    decoder.forward(Feed(torch.tensor([TOKENS[:n]]), torch.tensor([FIRST])), cache)
    cache.commit(range(n))
    return decoder, cache


def sees(spec: ModelSpec, committed: Callable[[int, int], bool]) -> Callable[[int, int, int, int], bool]:
    """A visibility rule for brute force over all rows in reading order: within a pass, a row sees the rows before it."""

    def row(layer: int, head: int, t: int, s: int) -> bool:
        there = s <= t if (t < n) == (s < n) else s < n and committed(t, s)
        return there and PLACES[t] - PLACES[s] < (spec.window(layer) or 10**9)

    return row


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("seen", ["all", "before", "choice"])
@torch.inference_mode()
def test_rows_see_of_the_committed_entries_what_they_are_to(seen: str, spec: ModelSpec) -> None:
    of: dict[str, tuple[Any, Callable[[int, int], bool]]] = {
        "all": (None, lambda t, s: True),
        "before": ("before", lambda t, s: PLACES[s] < PLACES[t]),
        "choice": (CHOICE, lambda t, s: bool(CHOICE[0, t - n, s])),
    }
    asked, allowed = of[seen]
    wanted = brute(toys.decoder(spec, toys.LIVELY, torch.float64), TOKENS, PLACES, sees(spec, allowed))[n:]
    feed = Feed(torch.tensor([TOKENS[n:]]), torch.tensor([LATER]), seen=asked)
    for probe in (None, Probe(Needs(attention="rows"))):
        decoder, cache = begun(spec)
        torch.testing.assert_close(decoder.forward(feed, cache, probe)[0], wanted, atol=1e-9, rtol=1e-9)
    if seen != "all":
        decoder, cache = begun(spec)
        assert (decoder.forward(replace(feed, seen=None), cache)[0] - wanted).abs().max() > 1e-3, (
            "the guard: it hides some"
        )


@torch.inference_mode()
def test_one_row_too_is_told_what_it_sees() -> None:
    spec = SPECS["full"]
    decoder, cache = begun(spec)
    wanted = brute(decoder, TOKENS[: n + 1], PLACES[: n + 1], sees(spec, lambda t, s: PLACES[s] < PLACES[t]))[
        n:
    ]
    feed = Feed(torch.tensor([TOKENS[n : n + 1]]), torch.tensor([LATER[:1]]), seen="before")
    torch.testing.assert_close(decoder.forward(feed, cache)[0], wanted, atol=1e-9, rtol=1e-9)


@torch.inference_mode()
def test_entries_keep_the_places_that_they_were_committed_at() -> None:
    decoder, cache = begun(SPECS["full"])
    decoder.forward(Feed(torch.tensor([TOKENS[n:]]), torch.tensor([LATER]), seen="before"), cache)
    cache.commit([0, 2])
    for store in cache.layers:
        assert store.positions()[0].tolist() == [[*FIRST, LATER[0], LATER[2]]] * 2 and not store.in_order
    cache.truncate(4)
    assert all(sorted(store.positions()[0, 0].tolist()) == [0, 1, 2] for store in cache.layers)


@torch.inference_mode()
def test_a_choice_names_each_row_and_entry() -> None:
    decoder, cache = begun(SPECS["full"])
    feed = Feed(torch.tensor([TOKENS[n:]]), torch.tensor([LATER]), seen=CHOICE[:, :, :-1])
    with pytest.raises(
        ValueError,
        match=r"^layer 0: 4 entries are held and 3 rows fed, and what they see has the shape \[3, 3\]",
    ):
        decoder.forward(feed, cache)


@torch.inference_mode()
def test_a_cache_that_is_emptied_begins_anew_and_evicted_nothing() -> None:
    decoder, cache = begun(SPECS["full"])
    for store in cache.layers:
        store.evicted = []
    cache.truncate(0)
    assert cache.length == 0 and all(store.n == 0 and store.evicted == [] for store in cache.layers)
    decoder.forward(Feed(torch.tensor([TOKENS[n:]]), torch.tensor([LATER])), cache)
    cache.commit(range(T))
    assert all(store.positions()[0].tolist() == [LATER] * 2 for store in cache.layers)
