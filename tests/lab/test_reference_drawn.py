"""Text tinted by the distance of its distributions from those of the reference model, and the reference's own tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
import toys

from decodescope.engine import Session
from decodescope.engine.core.roles import WHOLE
from decodescope.engine.decoding.bases.weights import CalibrationData, parse_transform_list
from decodescope.engine.trace import Trace
from decodescope.lab.charts import figure
from decodescope.lab.wire.reference import encode_reference

from .drawn import Drawn, told

OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['text', 'time'] });
all.forEach((one) => view.push(one)); view.seek(999); }"""


@pytest.fixture(scope="module")
def trace() -> Trace:
    whole = replace(toys.add_tokenizer(toys.pair()[0]), name="whole", stop_tokens=[])
    decoder = parse_transform_list("cut_layers skip=a1")[0].transform(
        whole.decoder, CalibrationData(lambda: None)
    )  # type: ignore[arg-type,return-value] # this transform uses no text
    made = replace(whole, name="cut", decoder=decoder, spec=decoder.spec)
    models, method = {WHOLE: whole}, toys.method(drafter=("token_recycling", {"nodes": "16"}))
    run = toys.finish_session(
        Session(made, method, toys.PROMPT, models=models, max_new_tokens=20, reference="model")
    )
    return run.sink  # type: ignore[return-value] # a trace


def test_the_wire_says_how_far_each_token_is_and_what_it_would_have_been(trace: Trace) -> None:
    head, *rest = told(trace)
    steps = [x for x in rest if x["kind"] == "step"]
    assert (
        head["along"] == trace.header.lanes[WHOLE]["name"]
        and told(toys.decode(count=2).sink)[0]["along"] is None
    )
    parted = 0
    for step, message in zip(trace.steps, steps, strict=True):
        reference = step.cache[0].reference
        assert [x[0] for x in message["beside"]] == [round(float(x), 6) for x in reference.drift]
        due = [None if a == b else trace.piece(a) for a, b in zip(reference.ids, step.emitted, strict=True)]
        assert [x[1] for x in message["beside"]] == due
        parted += sum(x is not None for x in due)
    assert parted > 2, "the test needs models that differ"
    step = replace(trace.steps[0], cache=[])
    assert encode_reference(step, trace.piece) == {}


def test_the_chart_has_every_token_and_marks_those_that_would_be_others(trace: Trace) -> None:
    line, marks = figure(trace, "missed").data
    drift = [float(x) for step in trace.steps for x in step.cache[0].reference.drift]
    assert list(line.y) == pytest.approx(drift, abs=1e-6)
    said = [x for step in trace.steps for x in step.cache[0].reference.ids]
    written = [x for step in trace.steps for x in step.emitted]
    assert list(marks.x) == [i for i, (a, b) in enumerate(zip(said, written, strict=True)) if a != b]


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_text_is_tinted_by_it(drawn: Drawn, trace: Trace) -> None:
    drawn.run(OPEN, told(trace))
    rows = [row for step in trace.steps for row in encode_reference(step, trace.piece)["beside"]]
    tokens = drawn.page.locator(".text-pane .tok.far")
    seen = tokens.evaluate_all(
        "all => all.map((x) => [x.style.getPropertyValue('--far'), x.matches('.otherwise'), x.title])"
    )
    assert len(seen) == len(rows)
    for (kl, other), (tint, otherwise, title) in zip(rows, seen, strict=True):
        assert tint == f"{60 * min(1, kl) ** 0.5:.0f}%" and otherwise == (other is not None)
        assert f"KL to {trace.header.lanes[WHOLE]['name']}" in title and ("say the same" in title) == (
            other is None
        )
    assert "full at 1 nat" in drawn.text(".text-pane .key.far") and len({x[0] for x in seen}) > 4
    drawn.run(OPEN, told(toys.decode(count=4).sink))
    assert not drawn.page.locator(".text-pane .key.far").is_visible() and not tokens.count()
