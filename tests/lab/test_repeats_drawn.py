"""Repetition in a text: the step-by-step record agrees with the whole text, and the page draws loops.

The rounds of a loop are measured by the recorded distributions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import toys

from decodescope.engine.trace import Trace
from decodescope.engine.trace.query.repeats import emitted_probabilities, find_repeats, loop_rounds
from decodescope.lab.figures import repeats as chart

from .drawn import Drawn, told

OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['tree', 'notes'] });
all.forEach((one) => view.push(one)); view.seek(0); }"""
WAYS: dict[str, dict[str, Any]] = {
    "plain": dict(),
    "copied": dict(drafter=("prompt_lookup", {"max_draft_tokens": 4, "ngram": 1})),
    "drawn": dict(sampler="temperature", drafter=("prompt_lookup", {"max_draft_tokens": 3, "ngram": 1})),
    "block": dict(strategy=("jacobi", {"block": 4})),
}


@cache
def run(way: str) -> Trace:
    return toys.decode(toys.method(**WAYS[way]), count=60).sink


def written(trace: Trace) -> list[int]:
    return [token for step in trace.steps for token in step.emitted]


@pytest.mark.parametrize("way", WAYS)
def test_steps_tell_the_stretches_of_the_whole_text_and_each_round_once(way: str) -> None:
    trace, seen, figures = run(way), dict[int, list[int]](), list[list[Any]]()
    count = 0
    for step, message in zip(trace.steps, [x for x in told(trace) if x["kind"] == "step"], strict=True):
        count += len(step.emitted)
        seen |= {one[0]: one for one in message.get("again", [])}
        figures += message.get("rounds", [])
        assert all(at + lasts <= count for at, _, lasts in message.get("again", [])), (
            "nothing of what is to come"
        )
        for at, n, *_ in message.get("rounds", []):
            assert at + (n - 1) * seen[at][1] <= count, "a round is told when it is whole"
    stretches = list(find_repeats(written(trace)))
    assert list(seen.values()) == [[x.at, x.period, x.lasts] for x in stretches]
    loops = [x for x in stretches if x.loop]
    assert loops or way == "drawn", "the test needs a text that goes round"
    assert [x[:2] for x in figures] == [[x.at, n + 1] for x in loops for n in range(x.lasts // x.period + 1)]


@pytest.mark.parametrize("way", ["plain", "copied", "block"])
def test_rounds_are_means_over_the_laws_that_the_steps_recorded(way: str) -> None:
    """Compared with the distribution at each token, looked up by the path that led there."""
    trace, p, best = run(way), list[float](), list[bool]()
    for step in trace.steps:
        assert step.tops is not None
        for k, token in enumerate(step.emitted):
            place = (k - 1 if step.path is None else [-1, *step.path][k]) if k else -1
            row = step.tops.places.tolist().index(place)
            law = dict(zip(step.tops.ids[row].tolist(), step.tops.p[row].tolist(), strict=True))
            p.append(law[token])
            best.append(law[token] == max(law.values()))
    assert all(best), "greedy text"
    (loop, *_) = [x for x in find_repeats(written(trace)) if x.loop]
    laws = [law for step in trace.steps for law in emitted_probabilities(step)]
    assert laws == list(zip(p, best, strict=True))
    begin, many = loop.at - loop.period, 0
    for one in loop_rounds(loop, laws):
        at = begin + (one.n - 1) * loop.period
        now, first = p[at : at + loop.period], p[begin : loop.at]
        assert one.tp == pytest.approx(sum(now) / loop.period) and one.wr == 1.0
        assert one.ip == pytest.approx(sum(a > b for a, b in zip(now, first, strict=True)) / loop.period)
        many += 1
    assert many == loop.lasts // loop.period + 1 > 2


def test_without_recorded_laws_rounds_are_counted_and_not_weighed() -> None:
    trace = run("plain")
    bare = Trace([trace.header])
    for step in trace.steps:
        bare.write(replace(step, tops=None))
    rows = [row for x in told(bare) if x["kind"] == "step" for row in x.get("rounds", [])]
    assert rows and all(row[2:] == [None, None, None] for row in rows)


def test_a_picture_repeats_itself_and_nobody_is_told() -> None:
    trace = toys.decode(toys.method(strategy="zipar", sampler="temperature"), [4, 0, 2], count=40).sink
    assert list(find_repeats(written(trace))), "the test needs cells that come again"
    assert not any("again" in x or "rounds" in x for x in told(trace))


def test_the_chart_has_a_band_for_each_copy_and_the_rounds_of_the_last_loop() -> None:
    trace = run("plain")
    drawing = chart.figure(trace)
    stretches = list(find_repeats(written(trace)))
    assert len(drawing.layout.shapes) == sum(-(-x.lasts // x.period) for x in stretches)
    last = [x for x in stretches if x.loop][-1]
    known = list(loop_rounds(last, [law for step in trace.steps for law in emitted_probabilities(step)]))
    tp, ip, wr = drawing.data[1:]
    assert list(tp.x) == [x.n for x in known] and list(tp.y) == [x.tp for x in known]
    assert list(ip.y) == [x.ip for x in known] and list(wr.y) == [x.wr for x in known]
    short = toys.decode(toys.method(), count=3).sink
    with pytest.raises(ValueError, match="No 4 tokens occur twice in what this run wrote"):
        chart.figure(short)


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_a_text_that_goes_round_is_drawn_with_its_rounds(drawn: Drawn) -> None:
    trace = run("plain")
    messages = told(trace)
    drawn.run(OPEN, messages)
    pane = drawn.page.locator(".repeats-pane")
    assert not pane.is_visible(), "nothing is said again at first"
    begun = next(x["i"] for x in messages if x["kind"] == "step" and x.get("rounds"))
    drawn.run("(i) => view.seek(i)", begun - 1)
    assert not pane.is_visible(), "a stretch that is no loop yet"
    drawn.run("(i) => view.seek(i)", len(trace.steps) - 1)
    stretches = list(find_repeats(written(trace)))
    loops = [x for x in stretches if x.loop]
    last = loops[-1]
    told_rounds = [
        row for x in messages if x["kind"] == "step" for row in x.get("rounds", []) if row[0] == last.at
    ]
    said = drawn.text(".repeats-pane .took")
    assert f"From token {last.at} on the text goes round, {last.period} token" in said
    assert f"{last.lasts // last.period + 1} whole rounds" in said
    assert f"in round {told_rounds[-1][1]} it has {told_rounds[-1][2]:.3f}" in said
    assert str(len(stretches)) in drawn.text(".repeats-pane .figures") and "said before" in drawn.text(
        ".repeats-pane .figures"
    )
    pane.get_by_role("button", name="Show as table").click()
    drawn.settled()
    rows = drawn.cells(".repeats-pane .twin tbody tr")
    assert [int(row[0]) for row in rows] == [row[1] for row in told_rounds]
    assert [row[1] for row in rows] == [f"{row[2]:.3f}" for row in told_rounds]
