"""A live run and its knobs: what is drawn, stopped, started again and compared."""

from __future__ import annotations

from typing import Any

import ipywidgets
import pytest
import toys
from waiting import eventually

from decodescope.engine import Method, start
from decodescope.engine.core.params import ParamError
from decodescope.engine.methods.drafters.lookup.prompt_lookup import PromptLookup
from decodescope.engine.session.start import BackgroundRun
from decodescope.lab import controls, show
from decodescope.lab.notebook import RunWidget, Scope
from decodescope.lab.views.controls import knob_widget, knobs

LONG = 1000


def begun(method: Any = None, count: int = 24) -> BackgroundRun:
    return start(
        toys.pair()[0], method or toys.method(sampler="temperature"), toys.PROMPT, max_new_tokens=count
    )


def looked_up(**more: Any) -> Method:
    return toys.method(
        drafter=("prompt_lookup", {"max_draft_tokens": 4, "ngram": 1, **more}), sampler="temperature"
    )


def test_a_run_is_shown_while_it_goes() -> None:
    running = begun()
    view = show(running)
    assert isinstance(view, RunWidget)
    view.wait(30)
    kinds = [message["kind"] for message in view.scope.messages]
    assert kinds == ["head", *["step"] * len(running.trace.steps), "end"]
    assert view.scope.trace is not None and view.scope.trace.tokens == running.trace.tokens
    assert view._stop.disabled and view._line.value.startswith("done: 24 tokens")
    assert isinstance(show(running.trace), Scope), "a trace is shown as before"
    with pytest.raises(ParamError, match="newest step"):
        show(running, 3)


def test_its_stop_ends_it() -> None:
    running = begun(count=LONG)
    running.pause()  # a toy's thousand tokens may finish before a busy machine has drawn the view
    view = show(running)
    running.resume()
    view._stop.click()
    view.wait(30)
    assert running.status == "cancelled" and view._line.value.startswith("stopped")
    assert view.scope.trace.end.reason == "stopped_by_user"


def test_another_run_takes_the_place_of_the_first() -> None:
    first, second = begun(), begun(count=7)
    view = show(first).follow(second)
    view.wait(30)
    assert len(view.scope.trace.steps) == 7 and view.running is second


def test_moving_a_knob_runs_again_and_the_run_before_ends() -> None:
    first = begun(looked_up(), LONG)
    first.pause()  # otherwise it may end before the knob's waiting time does
    panel = controls(first)
    knob = panel.panels[0].knobs["drafter.max_draft_tokens"]
    assert isinstance(knob, ipywidgets.IntSlider) and knob.value == 4 and (knob.min, knob.max) == (1, 64)
    knob.value = 9
    knob.value = 2  # both changes are within the waiting time: one run
    second = eventually(lambda: panel.runs[0] if panel.runs[0] is not first else None)
    assert second.method.drafter == PromptLookup(max_draft_tokens=2, ngram=1)
    eventually(lambda: first.is_over)
    assert first.status == "cancelled"
    eventually(lambda: second.trace.steps)
    second.stop()
    panel.wait(30)
    assert max(step.drafted for step in second.trace.steps) <= 2


def test_every_kind_of_knob_has_its_widget() -> None:
    drawn = controls(begun(looked_up(match="first"), 1)).panels[0].knobs
    kinds = {name: type(widget).__name__ for name, widget in drawn.items()}
    assert kinds["drafter.match"] == "Dropdown" and kinds["sampler.temperature"] == "FloatSlider"


def test_a_number_that_may_be_auto_is_a_line_of_text() -> None:
    method = Method.from_names({"drafter": "draft_model", "schedule": "specdec_pp"})
    knob = next(x for x in knobs(method) if x.param.name == "threshold")
    widget = knob_widget(knob)
    assert isinstance(widget, ipywidgets.Text) and widget.value == "auto"
    assert [knob.param.read(text, "x") for text in ("0.9", " auto ")] == [0.9, "auto"]


def test_what_does_not_go_together_is_said_in_a_line() -> None:
    panel = controls(begun(looked_up(), 4)).panels[0]
    panel._record["drafter"]["max_draft_tokens"] = 1000
    panel._apply_knobs()
    assert "must lie in [1, 64] tokens" in panel._line.value


def test_two_runs_are_compared_once_both_are_over() -> None:
    panel = controls(begun(looked_up()), begun()).wait(60)
    assert repr(panel).startswith("RunControls("), "what a cell asks of it"
    assert panel.comparison is not None
    first = panel.comparison
    panel.panels[0].knobs["drafter.max_draft_tokens"].value = 2
    eventually(lambda: panel.comparison is not None and panel.comparison is not first)
    assert [trace.header.method["drafter"].get("max_draft_tokens") for trace in panel.comparison.traces] == [
        2,
        None,
    ]


@pytest.mark.parametrize("given", [(), (1,), (1, 2, 3)], ids=["none", "no run", "three"])
def test_controls_of_what_is_no_run_are_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises(ParamError, match="what `start` returned"):
        controls(*given)
