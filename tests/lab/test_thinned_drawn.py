"""The view of a run with thinned maps of attention says so, and finds an entry's mass where a map came in stretches."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from decodescope.app.runs.catalogue.examples import examples
from decodescope.engine.trace import open_trace
from decodescope.lab.cache.mass import recorded_mass, whole_mass
from decodescope.lab.wire import cache as wire_cache

from .drawn import Drawn, told

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]
STEP = 5


@pytest.mark.parametrize("limit", [wire_cache.MAP, 90 * 60])
def test_a_thinned_map_is_drawn_and_said(drawn: Drawn, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_cache, "MAP", limit)
    with closing(open_trace(next(x.path for x in examples() if x.name == "library-card"))) as trace:
        change = next(x for x in trace.steps[STEP].cache if x.lane == "target")
        mass = recorded_mass(change)
        assert mass is not None and change.mass is None
        whole = whole_mass(mass).reshape(90, -1)
        messages = told(trace)
    drawn.run(
        "(messages) => { window.view = S.mount(place, {}); messages.forEach((m) => view.push(m)); }", messages
    )
    drawn.run("(step) => view.select({ step, node: 0 })", STEP)
    assert "heaviest entries of each head" in drawn.page.evaluate("place.innerText")
    found: dict[str, Any] = drawn.page.evaluate(
        "(step) => { const m = view.store.massAt(step); return { width: m.width, long: m.long, all: [...m] }; }",
        STEP,
    )
    width, long = found["width"], found["long"]
    assert (long > 1) == (whole.size > limit)
    for row in (0, 44, 89):
        for p in range(0, whole.shape[1], 7):
            stretch = whole[row, p // long * long : (p // long + 1) * long]
            assert found["all"][row * width + p // long] == stretch.max()
