"""The kinds of cache entries: page, exported file and notebook draw each with one mark, and name those that occur."""

from __future__ import annotations

import re

import numpy as np
import pytest

from decodescope.engine.trace import Trace, open_trace
from decodescope.engine.trace.file.named_trace import EXAMPLES
from decodescope.engine.trace.records.events import Augmented
from decodescope.lab.cache.entry_states import ENTRY_WORDS
from decodescope.lab.cache.lifetimes import EntryLifetimes
from decodescope.lab.figures import cache_entries
from decodescope.lab.views.bundle import WEB

from .drawn import Drawn, told

# example -> a step, and the kinds of entries that are there after it
KINDS: dict[str, tuple[int, set[str]]] = {
    "type-hints": (5, set()),
    "h2o": (30, {"held", "gone", "now"}),
    "fewer-blocks": (9, {"held", "cut"}),
    "fewer-heads": (9, {"held", "cut"}),
    "skipdecode": (40, {"held", "absent"}),
    "kivi": (39, {"held", "packed"}),
    "d2o": (20, {"held", "gone", "now", "merged"}),
    "beam": (20, {"held", "shared"}),
    "quest": (30, {"held", "unread"}),
}


def example(name: str) -> Trace:
    return open_trace(EXAMPLES / f"{name}.dstrace")


def shown(drawn: Drawn, trace: Trace, step: int) -> list[str]:
    """The kinds in the legend of the map after a step."""
    drawn.run(
        "(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['cache'] });"
        " all.forEach((one) => view.push(one)); }",
        told(trace),
    )
    drawn.run("(i) => view.seek(i)", step)
    return drawn.page.locator(".cache-pane .swatch").evaluate_all("all => all.map((one) => one.dataset.kind)")


def test_page_and_notebook_have_the_same_kinds_and_words() -> None:
    script = (WEB / "scope/cache/entries.js").read_text(encoding="utf-8")
    (table,) = re.findall(r"^export const ENTRY_WORDS = \{(.*?)\};", script, re.M | re.S)
    assert dict(re.findall(r'(\w+): "(.*?)"', table)) == ENTRY_WORDS
    assert set(cache_entries.PATTERNS) < set(ENTRY_WORDS)


@pytest.mark.parametrize("name", KINDS)
def test_the_figure_of_a_notebook_marks_what_is_there(name: str) -> None:
    trace = example(name)
    drawing = cache_entries.entry_lifetimes(trace)
    marks = {ENTRY_WORDS[kind] for kind in KINDS[name][1] & set(cache_entries.PATTERNS)} - {
        ENTRY_WORDS["unread"]
    }
    assert {one.name for one in drawing.data if one.name} == marks
    lives = EntryLifetimes.of(trace)
    rows = np.setdiff1d(np.arange(lives.rows), lives.cut)
    last = lives.held_mask(lives.count - 1)[rows].mean(0)
    assert np.allclose(np.asarray(drawing.data[0].z)[:, -1], last) and (
        "were cut" in drawing.layout.title.text
    ) is bool(lives.cut)
    if lives.cut:
        layer, head = divmod(lives.cut[0], lives.heads)
        with pytest.raises(ValueError, match=r"was cut out of the model\. Choose another"):
            cache_entries.entry_lifetimes(trace, layer, head)


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
class TestTheMap:
    """The map of the cache, with its legend, its counts and its table."""

    @pytest.mark.parametrize("name", KINDS)
    def test_its_legend_lists_what_occurs_and_it_counts_what_is_held(self, drawn: Drawn, name: str) -> None:
        step, kinds = KINDS[name]
        trace = example(name)
        assert set(shown(drawn, trace, step)) == kinds
        lives = EntryLifetimes.of(trace)
        least, most = lives.held_range(step)
        many = f"{least} to {most}" if least < most else str(most)
        sums = drawn.text(".cache-pane .figures")
        assert sums.startswith(f"{many} of {lives.length[step]}")
        assert ("heads cut" in sums) is bool(lives.cut)
        drawn.page.locator(".cache-pane").get_by_text("Show as table").click()
        table = [int(row[2]) for row in drawn.cells(".cache-pane tbody tr")]
        assert table == lives.held_mask(step).sum(1).tolist()

    def test_entries_without_tokens_and_those_of_a_file_have_marks_of_their_own(self, drawn: Drawn) -> None:
        trace = example("kivi")
        trace.prefill.cache[0].augmented = [
            Augmented("soft", 0, 8, "trained"),
            Augmented("state", 0, 0, "trained"),
        ]
        trace.header.loaded = {"entries": 5, "bytes": 1, "bits": 4.5, "sha256": ""}
        assert set(shown(drawn, trace, 3)) == {"held", "packed", "soft", "virtual", "loaded"}
        legend = drawn.text(".cache-pane .legend")
        assert "8 soft entries before the text" in legend and "a trained state before the text" in legend

    def test_entries_that_waited_are_absent_until_they_come(self, drawn: Drawn) -> None:
        trace = example("flush")
        lives = EntryLifetimes.of(trace)
        missing = [i for i in range(lives.count) if lives.absent_mask(i).any()]
        assert 3 < len(missing) < lives.count, "the test needs both"
        for i in (missing[0], missing[-1] + 1):
            assert ("absent" in shown(drawn, trace, i)) is (i in missing)
