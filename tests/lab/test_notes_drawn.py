"""A part's notes are drawn by their kind, and by nothing else: the part in these runs does not exist in the package."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import toys
from sizes import first_of

from .drawn import Drawn, told
from .planted import NOTES, planted
from .runs import known

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]

ROWS = """() => Object.fromEntries([...document.querySelectorAll('.note')].filter((x) => x.checkVisibility()).map((x) => [
  x.querySelector('b').innerText, { now: x.querySelector('.now').innerText, quiet: x.querySelector('p .quiet').innerText,
  label: x.querySelector('.plot').ariaLabel, spoken: x.querySelector('.plot').ariaValueText }]))"""
# the ink in one column of a picture, at the middle of a step; ink is what differs from the background
INKED = """(word, step, count) => {
  const row = [...document.querySelectorAll('.note')].find((x) => x.querySelector('b').innerText === word);
  const canvas = row.querySelector('canvas'), ratio = devicePixelRatio, c = canvas.getContext('2d');
  const x = Math.round((76 + ((step + 0.5) * (canvas.clientWidth - 76)) / count) * ratio);
  const data = c.getImageData(x, 0, 1, canvas.height).data, ys = [];
  for (let k = 0; k < canvas.height; k++) if (data[4 * k + 3] > 100) ys.push(k / ratio);
  return ys;
}"""


def show(drawn: Drawn, messages: list[dict[str, Any]], step: int = 4) -> dict[str, Any]:
    """Draw the notes of a run next to its tree and card at a step. Returns its rows: word -> the content of the row."""
    drawn.run(
        """(told, i) => { window.view = S.mount(place, { views: ['tree', 'card', 'notes', 'time'] });
        told.forEach((one) => view.push(one)); view.seek(i); }""",
        messages,
        step,
    )
    return drawn.run(ROWS)


def inked(drawn: Drawn, word: str, step: int, count: int = 20) -> list[float]:
    """The heights in px, from the top, at which a picture has ink in the middle of a step."""
    return drawn.run(INKED, word, step, count)


def test_each_kind_has_its_row_with_the_value_of_the_step(drawn: Drawn) -> None:
    rows = show(drawn, told(planted()))
    words = {"bar", "level", "planted", "reach", "crew", "seen", "time", "beds", "rows"}
    assert set(rows) == words, "what is noted of nodes stands on the card"
    assert {x: row["now"] for x, row in rows.items()} == {
        "bar": "1.5 nats", "level": "10 points", "planted": "no", "reach": "4 to 5, 10 to 13 positions",
        "crew": "4, 7, 11", "seen": "x, ⟨E2 96⟩", "time": "sowing 1.9 ms, reaping 0.5 ms", "beds": "left: 4, right: 2.5",
        "rows": "x 16 to 20 (stands), ⟨E2 96⟩ 18 to 20 (wilts)",
    }  # fmt: skip
    assert (rows["bar"]["quiet"], rows["level"]["quiet"]) == ("floor 1.5", "bar 1.5")
    assert rows["level"]["label"] == f"level: {NOTES['level'].what}"
    assert rows["level"]["spoken"] == "step 4: 10 points, bar 1.5"
    assert drawn.text(".notes-pane h2") == "Drafter" and "planter" in drawn.text(".notes-pane header")
    drawn.run("() => view.seek(6)")
    rows = drawn.run(ROWS)
    assert (
        rows["level"]["now"] == "–"
        and rows["level"]["spoken"] == "step 6: nothing noted"
        and rows["bar"]["now"] == "2 nats"
    )


@pytest.mark.nightly
def test_a_series_goes_up_and_down_with_its_values_and_leaves_a_gap_where_there_is_none(drawn: Drawn) -> None:
    show(drawn, told(planted()))
    high = [min(inked(drawn, "level", k)) for k in range(4)]
    assert high == sorted(high, reverse=True) and len(set(high)) == 4, "10, 13, 16, 19 from below"
    gap = inked(drawn, "level", 6)
    assert max(inked(drawn, "level", 0)) - high[3] > 10
    assert min(gap, default=99) > high[0], "only the line that it is held against"
    assert [bool(len(inked(drawn, "planted", k)) > 5) for k in range(6)] == [
        True,
        False,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.nightly
def test_spans_sets_clocks_and_grids_have_their_ink_where_the_values_are(drawn: Drawn) -> None:
    show(drawn, told(planted()))
    one, two = inked(drawn, "reach", 5), inked(drawn, "reach", 4)
    assert max(b - a for a, b in pairwise(one)) <= 1.01, "one stretch"
    assert max(b - a for a, b in pairwise(two)) > 5, "two, and something between them"
    assert not inked(drawn, "reach", 6)
    rows = lambda k: {int((y - 2) // 13) for y in inked(drawn, "crew", k) if (y - 2) % 13 < 4}  # noqa: E731
    assert [rows(k) for k in (0, 3, 6)] == [{0, 5, 6}, {3, 5, 6}, set()], (
        "members 0 to 4, 7 and 11 in their order"
    )
    low, high = inked(drawn, "time", 0), inked(drawn, "time", 18)
    assert len(high) > len(low) > 5, "sowing takes longer each time"
    shade = """(step) => { const canvas = [...document.querySelectorAll('.note')].find((x) => x.innerText.startsWith('beds'))
      .querySelector('canvas'), x = 76 + ((step + 0.5) * (canvas.clientWidth - 76)) / 20;
      return canvas.getContext('2d').getImageData(x * devicePixelRatio, 6 * devicePixelRatio, 1, 1).data[0]; }"""
    shades = [drawn.run(shade, k) for k in (0, 8, 18)]
    assert shades == sorted(shades, reverse=True) and len(set(shades)) == 3, "the more, the darker"


def test_what_was_noted_of_a_node_stands_on_its_card_and_under_it(drawn: Drawn) -> None:
    show(drawn, told(planted()))
    for node, sure, before in ((0, "2.25 nats", None), (1, "1.5 nats", "0 node"), (2, "0.5 nats", "1 node")):
        drawn.run("(node) => view.select({ step: 4, node })", node)
        card = drawn.text(".decision")
        assert "Noted" in card and sure in card and "bar 1.5" in card
        assert (before in card) if before else ("hung on" not in card), card
    subs = drawn.run(
        "() => [...document.querySelectorAll('.node .sub')].map((x) => x.textContent).filter(Boolean)"
    )
    assert "sureness 0.5 nats" in subs


def test_a_picture_is_a_scrubber_for_pointer_and_keys(drawn: Drawn) -> None:
    show(drawn, told(planted()))
    plot = drawn.page.locator(".note .plot").nth(1)
    box = plot.bounding_box()
    plot.click(position={"x": 76 + 12.5 * (box["width"] - 76) / 20, "y": 10})
    drawn.settled()
    assert drawn.run("() => view.at") == 12 and plot.get_attribute("aria-valuenow") == "12"
    plot.focus()
    drawn.page.keyboard.press("ArrowLeft")
    drawn.settled()
    assert plot.get_attribute("aria-valuenow") == "11" and "step 11" in plot.get_attribute("aria-valuetext")
    mark = drawn.run(
        "() => { const i = document.querySelectorAll('.plot i')[1]; return [i.offsetLeft, i.offsetWidth]; }"
    )
    each = (box["width"] - 76) / 20
    assert mark[0] == pytest.approx(76 + 11 * each, abs=1.5) and mark[1] == pytest.approx(each, abs=1.5)


def test_a_run_whose_parts_tell_nothing_shows_nothing(drawn: Drawn) -> None:
    assert not show(drawn, told(known("plain")), 2)
    assert not drawn.run("() => document.querySelector('.notes-pane').checkVisibility()")
    silent = told(planted())
    for message in silent:
        message.pop("notes", None)
    assert not drawn.run(
        "(all) => { view.clear(); all.forEach((one) => view.push(one)); view.seek(3); }", silent
    )
    assert not drawn.run(ROWS), "declared, but never told"


@pytest.mark.nightly
def test_of_many_members_the_most_frequent_are_shown_and_the_others_counted(drawn: Drawn) -> None:
    messages = told(planted())
    for message in messages[1:]:
        if "crew" in message["notes"]["drafter"]:
            message["notes"]["drafter"]["crew"] += list(range(100 + message["i"], 120))
    show(drawn, messages)
    assert "and 15 more" in drawn.run(
        "() => [...document.querySelectorAll('.note')].map((x) => x.innerText).join()"
    )
    tall = drawn.run(
        "() => Math.max(...[...document.querySelectorAll('.plot canvas')].map((x) => x.clientHeight))"
    )
    assert tall == 12 * 13 + 2


@pytest.mark.nightly
def test_two_hundred_thousand_steps_are_drawn_in_bins_and_painted_once(drawn: Drawn) -> None:
    head, *steps = [x for x in told(planted()) if x["kind"] != "end"]
    count = 200_000
    drawn.run(
        """(head, steps, count) => {
        window.view = S.mount(place, { views: ['notes'] });
        view.push(head);
        const rare = { ...steps[0].notes.drafter, level: 40 };
        for (let i = 0; i < count; i++) {
          const step = { ...steps[i % steps.length], i };
          view.push(i === 123456 ? { ...step, notes: { drafter: rare } } : step);
        }
        view.seek(1000);
        window.painted = 0;
        const stroke = CanvasRenderingContext2D.prototype.stroke;
        CanvasRenderingContext2D.prototype.stroke = function (...given) { window.painted++; return stroke.apply(this, given); };
        }""",
        head,
        steps,
        count,
    )
    span = 200_064  # steps of the axis: whole bins of 128
    top = min(y for k in (-128, 0, 128) for y in inked(drawn, "level", 123_456 + k, span))
    assert top < 8 < min(inked(drawn, "level", 60_000, span)), "one step among so many is seen"
    before = drawn.run("() => window.painted")
    drawn.run("() => view.seek(150000)")
    assert drawn.run("() => window.painted") == before, "another step is shown, the pictures stay"
    assert drawn.run(ROWS)["level"]["spoken"].startswith("step 150000")


@pytest.mark.nightly
def test_dark_and_light_have_their_own_ink(drawn: Drawn) -> None:
    show(drawn, told(planted()))
    ink = """() => { const row = [...document.querySelectorAll('.note')].find((x) => x.innerText.startsWith('crew'));
      const c = row.querySelector('canvas').getContext('2d'), at = (x) => Math.round(x * devicePixelRatio);
      return c.getImageData(at(90), at(6), 1, 1).data[0]; }"""
    light = drawn.run(ink)
    drawn.run("() => view.theme('dark')")
    assert drawn.run(ink) > light + 20


@pytest.mark.parametrize("width", first_of(390, 1440))
def test_nothing_is_wider_than_its_place(driver: Any, width: int) -> None:
    made = Drawn(driver, width)
    show(made, told(planted()))
    assert made.run("() => document.documentElement.scrollWidth <= innerWidth")
    seen = "[...document.querySelectorAll('.notes-pane .plot')].filter((x) => x.checkVisibility())"
    wide = made.run(f"() => {seen}.map((x) => x.clientWidth)")
    assert len(set(wide)) == 1 and wide[0] > (300 if width == 390 else 500)
    made.close()


@pytest.mark.nightly
def test_mu_and_tau_and_the_layers_left_out_are_seen_in_real_runs(drawn: Drawn) -> None:
    trace = toys.decode(toys.method(sampler="mirostat")).sink
    rows = show(drawn, told(trace))
    mu = float(f"{trace.steps[4].sampler['mu']:.3g}")
    assert rows["mu"]["now"] == f"{mu:g} bits" and rows["mu"]["quiet"] == "target 5"
    assert drawn.text(".notes-pane h2") == "Sampler"
    swift = toys.decode(
        toys.method(drafter=("swift", {"window": 3, "skip_ratio": 0.5, "min_probability": 0.2})), count=40
    ).sink
    drawn.run("() => view.destroy()")
    rows = show(drawn, told(swift))
    notes = swift.steps[4].draft.notes  # type: ignore[union-attr]
    for word, name in (("attention left out", "attn"), ("feed-forward left out", "ffn")):
        assert rows[word]["now"] == (", ".join(map(str, notes[name])) or "nothing")
