"""A step's comparisons on the page: every span of a passage as a map, and the texts of a vote."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

import numpy as np
import pytest
import toys

from decodescope.engine.trace import Trace
from decodescope.engine.trace.details.shapes import MatrixDetail, TallyDetail
from decodescope.engine.trace.details.spans import rank_spans, span_costs
from decodescope.lab.wire import survey as survey_module
from decodescope.lab.wire.messages import build_wire

from .drawn import Drawn, told

OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['tree', 'card'] });
all.forEach((one) => view.push(one)); view.seek(view.store.steps.findIndex((x) => x.survey)); }"""


@cache
def extracted(normal: bool = False) -> Trace:
    knobs = {"end_token": "7", "max_span_tokens": 4, "length_normalization": normal}
    return toys.decode(toys.method(strategy=("exact_extract", knobs)), count=9).sink


@cache
def voted() -> Trace:
    knobs = {"samples": 5, "similarity": "edit"}
    return toys.decode(toys.method(strategy=("consensus", knobs), sampler="temperature"), count=5).sink


def survey(trace: Trace, step: int) -> dict[str, Any]:
    """The page's data for the only matrix of a step; a negative step counts from the last."""
    steps = [one for one in told(trace) if one["kind"] == "step"]
    (message,) = steps[step]["survey"]
    return message


def losses_of(trace: Trace) -> tuple[np.ndarray, tuple[int, int]]:
    """The losses of all spans, and (first, tokens) of the answer."""
    listed, losses = trace.steps[0].details or ()
    assert isinstance(listed, TallyDetail) and isinstance(losses, MatrixDetail) and losses.numbers is not None
    return losses.numbers, (listed.columns["begin"][0], listed.columns["size"][0])


def vote_of(trace: Trace) -> tuple[list[float], int, np.ndarray]:
    """The votes, the text that was chosen, and how similar each two are."""
    tally, like = trace.steps[-1].details or ()
    assert isinstance(tally, TallyDetail) and isinstance(like, MatrixDetail) and like.numbers is not None
    return tally.columns["votes"], tally.values["chosen"], like.numbers


def numbers_of(message: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(message["numbers"]), "<f4").reshape(message["size"])


def test_the_wire_has_every_number_where_the_whole_step_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = extracted()
    message, (losses, answer) = survey(trace, 0), losses_of(trace)
    sent = numbers_of(message)
    assert np.array_equal(sent, losses, equal_nan=True) and np.isnan(sent).any(), (
        "the test needs places without a span"
    )
    assert message["listed"][0] == [0, answer[0], answer[1] - 1] and len(message["side"]) == len(losses)
    assert message["marks"][0] == [answer[0], answer[1] - 1, "answer", "accept"] and "rows" not in message
    (votes, chosen, like), message = vote_of(voted()), survey(voted(), -1)
    assert [row[1] for row in message["rows"]] == votes and np.allclose(numbers_of(message), like, atol=1e-7)
    assert message["first"] == chosen == message["order"][0] and "listed" not in message
    for one, step in ((trace, trace.steps[0]), (voted(), voted().steps[-1])):
        short = build_wire(one).step(step)
        assert short["few"] and [{*x} for x in short["survey"]] == [{"name"}], (
            "a map is fetched where it is looked at"
        )
    monkeypatch.setattr(survey_module, "MOST", 4)
    assert survey(trace, 0).keys() == {"name"} and "few" not in told(trace)[1], (
        "a map that is too large stays in the trace"
    )


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.parametrize("normal", [False, True])
def test_each_span_of_the_map_says_its_text_its_nats_and_its_rank(drawn: Drawn, normal: bool) -> None:
    trace = extracted(normal)
    losses, best = losses_of(trace)
    marks = trace.steps[0].detail("span_losses").marks
    drawn.run(OPEN, told(trace))
    values = span_costs(losses.astype(float), normal)
    count, order = int(np.isfinite(values).sum()), rank_spans(losses, normal, 9)
    assert drawn.text(".survey .took").endswith(f"1 of {count} spans; the answer" + (
        "; the greedy text." if len(marks) > 1 and marks[1][:2] == marks[0][:2] else "."))  # fmt: skip
    assert "Framed: the answer" in drawn.text(".survey .quiet")
    box = drawn.page.locator(".matrix-map")
    assert box.get_attribute("aria-label").startswith("nats of every span: down where it begins")
    first, tokens = 1, 3
    assert (first, tokens) != best and np.isfinite(values[first, tokens - 1])
    wide = (drawn.page.locator(".matrix-map canvas").bounding_box()["width"] - 86) / losses.shape[1]
    drawn.page.locator(".matrix-map canvas").click(
        position={"x": 84 + (tokens - 0.5) * wide, "y": 16 + (first + 0.5) * 15}
    )
    for _ in range(2):
        drawn.settled()
        value = values[first, tokens - 1]
        said = (
            f": tokens {first + 1} to {first + tokens} of the passage, {losses[first, tokens - 1]:.3f} nats"
        )
        said += f", {value:.3f} a token" if normal else ""
        assert said + f", {int((values < value).sum()) + 1} of {count} spans" in drawn.text(".survey .took")
        box.focus()
        drawn.page.keyboard.press("ArrowDown")
        first += 1
    assert drawn.run("() => view.at") == 0, "arrow keys stay in the map"
    drawn.page.locator(".decision").focus()
    drawn.run("(n) => view.select({ step: 0, node: n })", 2)
    start, length = order[1] if order[0] == best else order[0]
    where = f"tokens {start + 1} to {start + length}" if length > 1 else f"token {start + 1}"
    assert f": {where} of the passage" in drawn.text(".survey .took"), "a row of the card leads to its span"


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_texts_of_a_vote_stand_by_their_votes_and_say_how_like_they_are(drawn: Drawn) -> None:
    trace = voted()
    votes, chosen, like = vote_of(trace)
    assert len(set(votes)) > 2, "the test needs texts with more votes and with fewer"
    drawn.run(OPEN, told(trace))
    rows = drawn.page.locator(".matrix-rows li:visible")
    order = sorted(range(5), key=lambda k: (-votes[k], k != chosen, k))
    assert [int(x) - 1 for x in rows.locator(".n").all_inner_texts()] == order and order[0] == chosen
    assert rows.locator(".rate").all_inner_texts() == [f"{votes[k]:.3f}" for k in order]
    assert [k for k in range(5) if "the run's text" in rows.nth(k).inner_text()] == [0]
    rows.nth(3).locator("button").click()
    drawn.settled()
    assert f"Text {order[3] + 1} has {votes[order[3]]:.3f} votes" in drawn.text(".survey .took")
    assert drawn.page.locator(".decision .tried").count() == 1
    size = drawn.page.locator(".matrix-rows canvas").bounding_box()["width"] / 5
    drawn.page.locator(".matrix-rows canvas").click(position={"x": 1.5 * size, "y": 4.5 * 26})
    drawn.settled()
    a, b = order[4], order[1]
    assert drawn.text(".survey .took") == f"Text {a + 1} and text {b + 1} are {like[a, b]:.3f} alike."


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_a_map_that_was_not_kept_is_said_to_be_missing(drawn: Drawn) -> None:
    messages = told(extracted())
    messages[1]["survey"] = [{"name": "span_losses"}]
    drawn.run(OPEN, messages)
    assert "too large to be drawn, or was not kept" in drawn.text(".survey")
    assert drawn.page.locator(".matrix-map").is_hidden()
