"""A change of the page, and a run, build their method once and pass it on."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from sizes import by_turns
from toylab import speculative

from decodescope.app.page import controls, layout
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.compare.comparison import start_all
from decodescope.app.runs.preset_choice import find_preset
from decodescope.app.runs.recipe import choice_from_header
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.session.method import Method
from decodescope.engine.trace import open_trace


@pytest.fixture
def composed(monkeypatch: pytest.MonkeyPatch) -> list[Method]:
    """The methods built since then, in order; those of the presets exist already."""
    find_preset(None)
    methods: list[Method] = []
    begin = Method.__init__

    def counted(self: Method, *parts: Any, **named: Any) -> None:
        begin(self, *parts, **named)
        methods.append(self)

    monkeypatch.setattr(Method, "__init__", counted)
    return methods


def handler(play: RunService, name: str) -> tuple[Callable[..., Any], list[Any]]:
    """The handler that the page calls, and the values of its inputs when the page opens."""
    with layout.build_page(play) as page:
        event = next(x for x in page.fns.values() if getattr(x.fn, "__name__", "") == name)
    return event.fn, [getattr(x, "value", None) for x in event.inputs]


@pytest.mark.parametrize("name", ["checked", "chosen"])
def test_a_change_of_the_page_makes_one_method(name: str, play: RunService, composed: list[Method]) -> None:
    changed, values = handler(play, name)
    composed.clear()
    answers = changed(*values)
    assert len(composed) == 1
    assert controls.FIRST in answers, "the preset that the page opens with is known again by it"


def test_a_preset_leaves_lists_of_models_alone_that_it_does_not_change(play: RunService) -> None:
    """A value sent back would overwrite a model that the user chose while the answer was on its way."""
    composed, (_, *now) = handler(play, "composed")
    answers = composed("plain", *now)
    assert now[0] and all(x == gr.skip() for x in answers[: len(now)])
    knobs = answers[len(now) :]
    assert any("value" in x for x in knobs if isinstance(x, dict)), "all else becomes the preset's"


def test_a_box_more_is_no_listener_more(play: RunService) -> None:
    """Each listener names all boxes, and for each of its components the page library searches all listeners."""
    with layout.build_page(play) as page:
        assert len(page.fns) < 20, f"{len(page.fns)} listeners on a page of {len(page.blocks)} components"
    assert len(page.blocks) < 120, "all knobs of a kind are one input"


def test_a_run_makes_one_method_and_a_comparison_one_each(play: RunService, composed: list[Method]) -> None:
    run, (_, *values) = handler(play, "start")  # the first input is the method to compare with
    composed.clear()
    assert "run" in run(SimpleNamespace(session_hash="one"), "", *values) and len(composed) == 1
    composed.clear()
    assert "with" in run(SimpleNamespace(session_hash="two"), "plain", *values) and len(composed) == 2
    composed.clear()
    start_all(play, [speculative(), speculative(), RunChoice("hello", PRESETS["plain"].names)])
    assert len(composed) == 3


def test_a_method_that_was_refused_is_named_by_the_same_sentence_when_it_is_run(play: RunService) -> None:
    odd = RunChoice("x", {"drafter": "nothing"})
    refused = play.compose(odd)
    assert (
        refused.method is None
        and refused.further_roles == ()
        and "no drafter is called 'nothing'" in refused.why
    )
    with pytest.raises(ValueError, match="no drafter is called 'nothing'"):
        play.start(odd)


@pytest.mark.nightly
def test_a_preset_whose_model_is_not_here_is_refused_in_a_sentence(
    play: RunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, _ = handler(play, "composed")
    monkeypatch.setattr(play.models, "nearest_key", lambda name: None)
    *rest, said = put("canvas", "toy")
    assert said["refused"].endswith(
        "is made for the model lab-mdm, which is not here: choose another method."
    )
    assert rest and all(x == rest[0] for x in rest), "the controls stay as they are"


@pytest.mark.parametrize("draft", [True, False])
def test_parts_that_the_first_method_does_not_use_are_hidden_from_the_start(draft: bool) -> None:
    with gr.Blocks():
        table = controls.build(draft=draft)
    shown = {kind for kind, part in table.parts.items() if part.visible}
    assert (
        {"strategy", "drafter"}
        <= shown
        == controls.used_kinds({kind: part.value for kind, part in table.parts.items()})
    )
    seen = table.visible_knobs(*(part.value for part in table.parts.values()))
    assert any(seen.values()) and {kind for kind, names in seen.items() if names} <= shown
    for kind, panel in table.knobs.items():
        assert json.dumps(json.dumps({"kind": kind, "shown": seen[kind]})) in panel.js_on_load, (
            "the panel begins with them"
        )


@pytest.mark.parametrize("name", by_turns(6, PRESETS))
def test_the_controls_make_the_method_of_a_preset_that_is_put_into_them(name: str) -> None:
    """Also for a preset that leaves a knob at its default, when the controls start at another value."""
    with gr.Blocks():
        table = controls.build(draft=True)
    preset = PRESETS[name]
    values = [x.get("value") for x in table.part_updates(RunChoice("", preset.names, preset.settings))]
    chosen = table.choice("x", 0, 1, "full", True, False, False, False, "text", *values)
    assert (
        find_preset(Method.from_names(chosen.names, chosen.settings), preset.models) == name
        and chosen.reference
    )


def test_the_level_of_a_choice_is_what_its_run_records(play: RunService) -> None:
    channel = play.start(RunChoice("hello", {"drafter": "none"}, max_new=3, level="full"))
    assert play._jobs[channel.run].wait(300)
    with closing(open_trace(channel.path)) as trace:
        assert trace.header.levels[-1] == "full" and choice_from_header(trace.header).level == "full"
        assert next(iter(trace.steps)).fields.logits is not None, "a what-if about temperature reads these"
    with pytest.raises(ValueError, match=r"level = 'all': Choose one of summary, decisions, full\."):
        play.start(RunChoice("hello", {"drafter": "none"}, max_new=3, level="all"))
