"""What a step held against each other on the page: every span of a passage as a map, and the texts of a vote."""

from __future__ import annotations

import base64
from functools import cache

import numpy as np
import pytest
import toys

from decodescope.engine.trace import Trace
from decodescope.engine.trace.details.spans import judged, ranked
from decodescope.lab.wire import surveyed
from decodescope.lab.wire.messages import wire_of

from .drawn import Drawn, told

OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['tree', 'card'] });
all.forEach((one) => view.push(one)); view.seek(view.store.steps.findIndex((x) => x.survey)); }"""


@cache
def extracted(normal: bool = False) -> Trace:
    knobs = {"end": "7", "longest": 4, "normal": normal}
    return toys.decode(toys.method(strategy=("exact_extract", knobs)), count=9).sink


@cache
def voted() -> Trace:
    knobs = {"samples": 5, "measure": "edit"}
    return toys.decode(toys.method(strategy=("consensus", knobs), sampler="temperature"), count=5).sink


def test_the_wire_has_every_span_and_every_likeness_where_the_whole_step_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = extracted()
    spans, message = trace.steps[0].spans, told(trace)[1]["survey"]
    assert spans is not None and spans.losses is not None
    sent = np.frombuffer(base64.b64decode(message["losses"]), "<f4").reshape(
        message["count"], message["long"]
    )
    assert np.array_equal(sent, spans.losses, equal_nan=True) and np.isnan(sent).any(), (
        "the test needs places without a span"
    )
    assert message["rows"][0] == message["best"] == spans.best and len(message["words"]) == spans.count
    vote, message = voted().steps[-1].drawn, told(voted())[-2]["survey"]
    assert vote is not None and vote.like is not None
    assert message["votes"] == vote.votes and np.allclose(message["like"], vote.like, atol=1e-7)
    for one, step in ((trace, trace.steps[0]), (voted(), voted().steps[-1])):
        short = wire_of(one).step(step)
        assert short["few"] and not {"losses", "like"} & short["survey"].keys(), (
            "a map is fetched where it is looked at"
        )
    monkeypatch.setattr(surveyed, "MOST", 4)
    assert not {"losses", "like"} & told(trace)[1]["survey"].keys(), (
        "a map that is too large stays in the trace"
    )


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.parametrize("normal", [False, True])
def test_each_span_of_the_map_says_its_text_its_nats_and_its_rank(drawn: Drawn, normal: bool) -> None:
    trace = extracted(normal)
    spans = trace.steps[0].spans
    assert spans is not None and spans.losses is not None
    drawn.run(OPEN, told(trace))
    values = judged(spans.losses.astype(float), normal)
    count, order = int(np.isfinite(values).sum()), ranked(spans.losses, normal, 9)
    assert drawn.text(".survey .took").endswith(f"1 of {count} spans; the answer" + (
        "; the greedy text." if spans.greedy == spans.best else "."))  # fmt: skip
    box = drawn.page.locator(".spans")
    first, tokens = 1, 3
    assert [first, tokens] != spans.best and np.isfinite(values[first, tokens - 1])
    wide = (drawn.page.locator(".spans canvas").bounding_box()["width"] - 86) / spans.losses.shape[1]
    drawn.page.locator(".spans canvas").click(
        position={"x": 84 + (tokens - 0.5) * wide, "y": 16 + (first + 0.5) * 15}
    )
    for _ in range(2):
        drawn.settled()
        value = values[first, tokens - 1]
        said = f": tokens {first + 1} to {first + tokens} of the passage, {spans.losses[first, tokens - 1]:.3f} nats"
        said += f", {value:.3f} a token" if normal else ""
        assert said + f", {int((values < value).sum()) + 1} of {count} spans" in drawn.text(".survey .took")
        box.focus()
        drawn.page.keyboard.press("ArrowDown")
        first += 1
    assert drawn.run("() => view.at") == 0, "arrow keys stay in the map"
    drawn.page.locator(".decision").focus()
    drawn.run("(n) => view.select({ step: 0, node: n })", 2)
    start, length = order[1] if list(order[0]) == spans.best else order[0]
    where = f"tokens {start + 1} to {start + length}" if length > 1 else f"token {start + 1}"
    assert f": {where} of the passage" in drawn.text(".survey .took"), "a row of the card leads to its span"


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_texts_of_a_vote_stand_by_their_votes_and_say_how_like_they_are(drawn: Drawn) -> None:
    trace = voted()
    vote = trace.steps[-1].drawn
    assert vote is not None and vote.like is not None and vote.chosen is not None
    assert len(set(vote.votes)) > 2, "the test needs texts with more votes and with fewer"
    drawn.run(OPEN, told(trace))
    rows = drawn.page.locator(".voted li:visible")
    order = sorted(range(5), key=lambda k: (-vote.votes[k], k != vote.chosen, k))
    assert [int(x) - 1 for x in rows.locator(".n").all_inner_texts()] == order and order[0] == vote.chosen
    assert rows.locator(".rate").all_inner_texts() == [f"{vote.votes[k]:.3f}" for k in order]
    assert [k for k in range(5) if "the run's text" in rows.nth(k).inner_text()] == [0]
    rows.nth(3).locator("button").click()
    drawn.settled()
    assert f"Text {order[3] + 1} has {vote.votes[order[3]]:.3f} votes" in drawn.text(".survey .took")
    assert drawn.page.locator(".decision .tried").count() == 1
    size = drawn.page.locator(".voted canvas").bounding_box()["width"] / 5
    drawn.page.locator(".voted canvas").click(position={"x": 1.5 * size, "y": 4.5 * 26})
    drawn.settled()
    a, b = order[4], order[1]
    assert drawn.text(".survey .took") == f"Text {a + 1} and text {b + 1} are {vote.like[a, b]:.3f} alike."


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_a_map_that_was_not_kept_is_said_to_be_missing(drawn: Drawn) -> None:
    messages = told(extracted())
    del messages[1]["survey"]["losses"]
    drawn.run(OPEN, messages)
    assert "too large to be drawn, or was not kept" in drawn.text(".survey")
    assert drawn.page.locator(".spans").is_hidden()
