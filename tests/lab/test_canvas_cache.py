"""The cache of a canvas: held entries are named by their places, and the page says so when nothing is kept."""

from __future__ import annotations

from functools import cache

import pytest
import toys

from decodescope.engine.trace import Trace
from decodescope.lab.cache.lifetimes import EntryLifetimes
from decodescope.lab.figures import cache_entries

from .drawn import Drawn, told

BLOCK = 4


@cache
def run(kind: str) -> Trace:
    return toys.decode(toys.method(strategy=("masked", dict(cache=kind, block=BLOCK))), count=12).sink


def test_entries_that_are_made_anew_have_no_lives() -> None:
    assert not EntryLifetimes.of(run("prefix")).unplaced and cache_entries.entry_lifetimes(run("prefix"))
    for kind, word in (("none", "Nothing is kept"), ("dual", "read anew for each block")):
        assert word in EntryLifetimes.of(run(kind)).unplaced
        with pytest.raises(ValueError, match=word):
            cache_entries.entry_lifetimes(run(kind))
        assert cache_entries.figure(run(kind)), "counts stay"


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_map_of_both_sides_leaves_out_the_block_between_them(drawn: Drawn) -> None:
    trace = run("dual")
    drawn.run(
        "(all) => { window.view = S.mount(place, {}); all.forEach((one) => view.push(one)); }", told(trace)
    )
    drawn.page.locator(".cache-pane").get_by_text("Show as table").click()
    seen = set()
    for step in trace.steps:
        assert step.detail_of("canvas") is not None
        first, behind = step.detail_of("canvas").block
        drawn.run("(i) => view.seek(i)", step.step)
        due = [
            x
            for x in range(step.detail_of("canvas").start + step.detail_of("canvas").length)
            if not first <= x < behind
        ]
        assert len(due) == step.cache[0].held
        spans = drawn.cells(".cache-pane tbody tr")[0][3]
        read = [
            x for one in spans.split(", ") for x in range(int(one.split("–")[0]), int(one.split("–")[-1]) + 1)
        ]
        assert read == due
        seen.add(spans)
    assert len(seen) == 3, "the block goes on"
    drawn.page.locator(".cache-pane").get_by_text("Show as table").click()
    drawn.settled()
    assert f"positions {first} to {behind - 1} are left out" in drawn.text(".cache-pane .rule")


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_a_canvas_without_a_cache_says_that_nothing_is_kept(drawn: Drawn) -> None:
    drawn.run(
        "(all) => { window.view = S.mount(place, {}); all.forEach((one) => view.push(one)); }",
        told(run("none")),
    )
    pane = drawn.page.locator(".cache-pane")
    assert "Nothing is kept" in pane.inner_text() and "0 positions" not in pane.inner_text()
    assert not pane.locator("canvas:visible").count()
