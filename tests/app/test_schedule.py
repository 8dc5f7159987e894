"""A schedule on the command line, in recipes and links, among the page's controls, and in older traces.

Older traces were made before schedules existed.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from decodescope.app.cli import main
from decodescope.app.page import controls
from decodescope.app.runs.recipe import choice_from_header, from_json, recipe
from decodescope.app.runs.run_service import RunChoice
from decodescope.engine import Method, load, run
from decodescope.engine.core.component import registry
from decodescope.engine.trace import check, open_trace

NAMES = {"target": "lab", "draft": "lab-draft"}
CHOICE = RunChoice(
    "def add(a, b):",
    {"drafter": "draft_model", "schedule": "confidence", "sampler": ["greedy"]},
    {"schedule": {"threshold": 0.55, "max_draft_tokens": 6, "tune_threshold": False}},
    seed=1,
    max_new=16,
)


def test_command_and_link_keep_the_schedule_and_its_knobs(capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(recipe(CHOICE, NAMES, "command"))
    assert words[words.index("--schedule") + 1] == "confidence" and "schedule.threshold=0.55" in words
    assert from_json(recipe(CHOICE, NAMES, "link").removeprefix("#set=")) == CHOICE
    assert main([*words[1:], "--json"]) == 0
    method = Method.from_names(CHOICE.names, CHOICE.settings)
    wanted = run(load("lab"), method, CHOICE.prompt, draft=load("lab-draft"), max_new_tokens=16, seed=1)
    said = json.loads(capsys.readouterr().out)
    assert said["tokens"] == wanted.tokens and said["drafted"] == sum(x.drafted for x in wanted.trace.steps)
    assert len({x.drafted for x in wanted.trace.steps}) > 1, "the schedule decided"
    assert "--schedule" not in recipe(
        RunChoice("x", {"drafter": "draft_model", "schedule": "fixed"}), NAMES, "command"
    )


def test_schedule_that_nobody_asks_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "run",
        "--model",
        "lab",
        "--drafter",
        "prompt_lookup",
        "--schedule",
        "heuristic",
        "--prompt",
        "x",
    ]
    assert main(words) == 2
    said = capsys.readouterr().err.strip()
    assert (
        "so the schedule heuristic would be ignored; choose the schedule fixed" in said and "\n" not in said
    )


def test_a_trace_gives_the_schedule_that_its_drafter_asks() -> None:
    for file in sorted((Path(__file__).parents[2] / "assets" / "traces").glob("*.dstrace")):
        trace = open_trace(file)
        assert check(trace).ok
        if trace.header.method["schedule"]["name"] != "fixed":
            continue
        drafter = choice_from_header(trace.header).names.get("drafter")
        # every drafter that drafts has a gate
        asks = drafter is not None and registry("drafter")[drafter]().drafts
        assert choice_from_header(trace.header).names.get("schedule") == ("fixed" if asks else None)


@pytest.fixture(scope="module")
def made() -> controls.MethodControls:
    with gr.Blocks():
        return controls.build(draft=True)


def shown(made: controls.MethodControls, **chosen: Any) -> bool:
    """True if the page shows the schedule."""
    names = [chosen.get(kind, part.value) for kind, part in made.parts.items()]
    return made.visibility(*names)[list(made.parts).index("schedule")]["visible"]


def test_page_shows_the_schedule_where_the_drafter_can_have_one(made: controls.MethodControls) -> None:
    assert made.parts["schedule"].value == "fixed"
    assert shown(made, drafter="draft_model") and shown(made, drafter="early_exit")
    assert any(x.gates for x in registry("schedule").values()) and shown(made, drafter="prompt_lookup"), (
        "a gate goes with it"
    )
    assert not shown(made, drafter="none")
    assert not shown(made, strategy="jacobi")


def test_page_reads_and_puts_the_schedule_and_leaves_a_hidden_one_out(made: controls.MethodControls) -> None:
    names, kinds = list(made.parts), list(made.knobs)
    values = [x["value"] for x in made.part_updates(CHOICE)]
    parts, settings = made.read(values)
    assert parts["schedule"] == "confidence" and settings["schedule"] == {
        "threshold": 0.55,
        "max_draft_tokens": 6,
        "tune_threshold": False,
    }
    values[names.index("drafter")] = "none"
    parts, settings = made.read(values)
    assert "schedule" not in parts and "schedule" not in settings
    before = made.part_updates(
        RunChoice("x", {"drafter": "draft_model"})
    )  # a link made before schedules existed
    assert before[names.index("schedule")]["value"] == "fixed"
    assert "confidence" not in before[len(names) + kinds.index("schedule")]["value"], (
        "it goes back to how it began"
    )
    assert made.begins["schedule"]["confidence"]["threshold"] == 0.4
