"""The prompts of presets: a preset brings its prompt, never replaces a visitor's own, and models write sensibly after it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gradio as gr
import pytest
from scripted import script
from toylab import toy_play

from decodescope.app.page import layout
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.preset_choice import apply_preset
from decodescope.app.runs.preset_prompts import MOST, OWN, RENAMED, SHUFFLED, apply_preset_prompt
from decodescope.app.runs.recipe import initial_choice, replace_part
from decodescope.app.runs.run_service import RunChoice
from decodescope.engine import run
from decodescope.engine.core.roles import TARGET
from decodescope.engine.trace.query.repeats import repeated_share

LOOPS = "class Dog:\n    def bark(self):\n        return"  # the example `loop` repeats itself after this
ROUND = {
    "picture",
    "needle_lost",
}  # most cells of the picture are white; digits are invented once the number is lost


@pytest.fixture(scope="module")
def presets() -> ModuleType:
    return script("presets")


def test_no_preset_is_shown_on_a_prompt_behind_which_its_model_goes_round(presets: ModuleType) -> None:
    """Each prompt is checked with its own settings, as they were measured."""
    rows = presets.kept()
    old = [name for name in PRESETS if name not in rows or rows[name]["settings"] != presets.settings(name)]
    assert not old and rows.keys() == PRESETS.keys(), f"run python benchmarks/presets.py --write: {old}"
    bad = {name: row["text"] for name, row in rows.items() if row["again"] > MOST and name not in ROUND}
    assert not bad, f"choose another prompt in app/runs/preset_prompts.py: {bad}"


@pytest.mark.nightly
def test_what_was_measured_is_what_is_written(presets: ModuleType) -> None:
    """Measure one preset again; a text that repeats itself exceeds the bound."""
    assert presets.written("snapkv") == presets.kept()["snapkv"]
    again = repeated_share(
        run(presets.model("lab"), None, LOOPS, max_new_tokens=presets.NEW, level="summary").tokens
    )
    assert again > MOST, "the bound must refuse a loop"


def test_prompts_are_those_of_presets() -> None:
    other = {x for x in PRESETS if PRESETS[x].models.get(TARGET) in ("lab-mdm", "lab-digits")}
    assert OWN.keys() <= PRESETS.keys() and other <= OWN.keys() and len(other) >= 4
    longest = max(len(x.prompt) for x in OWN.values())
    assert longest < 2000 and all(x.prompt.strip() == x.prompt for x in OWN.values())


def test_a_preset_brings_its_prompt_and_takes_it_away_again() -> None:
    begin = RunChoice("the page's own")
    brought = apply_preset_prompt(begin, "canvas", begin)
    assert (brought.prompt, brought.chat) == (SHUFFLED.prompt, False)
    again = apply_preset_prompt(brought, "quest", begin)
    assert (again.prompt, again.chat) == (RENAMED.prompt, True)
    assert apply_preset_prompt(again, "chain", begin) == begin
    own = RunChoice("a visitor's", chat=True)
    assert apply_preset_prompt(own, "canvas", begin) == own, "what a visitor wrote stays"
    assert replace_part(own, "preset", "quest", str).prompt == own.prompt
    assert replace_part(RunChoice(initial_choice().prompt), "preset", "quest", str).prompt == RENAMED.prompt
    assert apply_preset(begin, "quest").prompt == begin.prompt, (
        "a run beside another one reads the other's prompt"
    )


@pytest.mark.parametrize(("now", "due"), [(initial_choice().prompt, RENAMED.prompt), ("a visitor's", None)])
def test_the_box_of_the_page_follows_a_preset(now: str, due: str | None, tmp_path: Any) -> None:
    play = toy_play(tmp_path)
    with layout.build_page(play) as page:
        event = next(x for x in page.fns.values() if getattr(x.fn, "__name__", "") == "composed")
    _, _, _, *models = (getattr(x, "value", None) for x in event.inputs)
    prompt, chat, *_ = event.fn("quest", now, False, *models)
    assert (prompt, chat) == ((due, True) if due else (gr.skip(), gr.skip()))
    play.close()
