"""A model in a role that a part defines: on the command line, in a recipe, in the estimate, on the page and in a fork."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import second
from browser import option, served
from toylab import toy_play

from decodescope.app.http.guard import Guard
from decodescope.app.page import layout
from decodescope.app.runs.forks import fork
from decodescope.app.runs.recipe import recipe
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.app.server import build_app
from decodescope.engine.trace import open_trace

CHOICE = RunChoice("Once upon", {"strategy": second.NAME}, max_new=6)
RUN = ["run", "--model", "lab-draft", "--prompt", "Once upon", "--max-new-tokens", "6"]


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the strategy for each test."""
    second.plant(monkeypatch)


def test_the_command_line_gives_models_by_role(said: Any, tmp_path: Path) -> None:
    asked = [*RUN, "--strategy", second.NAME, "--json"]
    code, out, _ = said(*asked, "--role", "large=lab", "--trace", str(tmp_path / "a.dstrace"))
    assert code == 0
    assert open_trace(tmp_path / "a.dstrace").header.lanes["large"]["name"] == "lab"
    copied = shlex.split(recipe(CHOICE, {"target": "lab-draft", "large": "lab", "draft": "lab"}, "command"))
    assert copied[copied.index("--role") + 1] == "large=lab" and "--draft" not in copied
    assert json.loads(said(*copied[1:], "--json")[1])["tokens"] == json.loads(out)["tokens"]
    forked = ["trace", "fork", str(tmp_path / "a.dstrace"), "--step", "2", "--seed", "4", "--json"]
    code, again, _ = said(*forked, "--trace", str(tmp_path / "b.dstrace"))
    assert code == 0 and json.loads(again)["tokens"] == json.loads(out)["tokens"], (
        "its models are found by their names"
    )


def test_the_command_line_says_what_is_missing_too_much_or_given_twice(said: Any) -> None:
    asked = [*RUN, "--strategy", second.NAME]
    code, _, err = said(*asked)
    assert code == 2 and "second_opinion needs a model in the role 'large': give --role large=NAME" in err
    code, _, err = said(*RUN, "--role", "large=lab", "--json")
    assert code == 0 and err == "Note: this method needs no further model, so --role large=lab is ignored.\n"
    code, _, err = said(*asked, "--role", "large=lab", "--role", "large=lab-draft")
    assert code == 2 and err == "The role large is given two models, lab and lab-draft: give it one.\n"
    for wrong in ("large", "large=", "target=lab", "Large=lab"):
        code, _, err = said(*asked, "--role", wrong)
        assert code == 2 and "must be ROLE=NAME, such as large=lab" in err


def test_the_page_asks_for_the_model_estimates_it_runs_with_it_and_forks(tmp_path: Path) -> None:
    play = RunService("lab-draft", None, tmp_path / "traces")
    asked = play.check(CHOICE)
    assert asked == "Second opinion needs a large model: choose one under Large model."
    assert play.further_roles(CHOICE) == ("large",)
    names = {"target": "lab-draft", "large": "lab"}
    chosen = replace(CHOICE, models=names)
    before, plain = play.estimate_memory(chosen), play.estimate_memory(CHOICE)
    assert [*before.weights] == ["lab-draft", "lab"] and before.cache > plain.cache
    assert play.check(chosen) == "" and {x["role"] for x in play.models.state(names)["models"]} == {
        "target",
        "large",
    }
    channel = play.start(chosen)
    assert play._jobs[channel.run].wait(300) and channel.status == "done"
    assert [*channel.wire.header.lanes] == ["large"]  # type: ignore[union-attr] # the run has started
    branch = fork(play, channel, {"step": 2, "change": {"settings": {"strategy": {"share": 0.0}}}})
    assert play._jobs[branch.run].wait(300) and branch.status == "done"
    assert [*branch.wire.header.lanes] == ["large"]  # type: ignore[union-attr]
    play.close()


def test_a_model_may_be_given_to_a_role_from_the_start(tmp_path: Path) -> None:
    play = RunService("lab", None, tmp_path, further={"large": "lab-draft"})
    assert play.models.names == {"target": "lab", "large": "lab-draft"}
    boxes = {x.elem_id: x for x in layout.build_page(play).blocks.values()}
    assert (
        boxes["ds-large"].value == "lab-draft"
        and boxes["ds-large"].visible
        and boxes["ds-large"].label == "Large model"
    )
    assert not boxes["ds-draft2"].visible and boxes["ds-draft"].visible


def test_only_a_model_with_a_causal_mask_can_be_chosen_beside_the_target(tmp_path: Path) -> None:
    play = RunService("lab", "lab-draft", tmp_path)
    boxes = {
        x.elem_id: [key for _, key in x.choices]
        for x in layout.build_page(play).blocks.values()
        if hasattr(x, "choices")
    }
    assert {"lab", "lab-draft", "lab-mdm"} <= set(boxes["ds-target"])
    assert "lab-draft" in boxes["ds-draft"] and "lab-mdm" not in boxes["ds-draft"]
    play.close()


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_the_list_of_models_comes_with_the_strategy(driver: Any, tmp_path: Path) -> None:
    play = toy_play(tmp_path)
    with served(lambda port: Guard(build_app(play), port)) as address:
        page = driver.new_page()
        page.goto(address)
        page.wait_for_selector("#ds-strategy input")
        assert not page.locator("#ds-large").is_visible()
        option(page, "#ds-strategy", "Second opinion")
        page.wait_for_selector("#ds-large >> visible=true")
        assert page.locator("#ds-large label, #ds-large span").first.inner_text().strip() == "Large model"
        page.wait_for_selector("#ds-answer .ds-refusal >> text=choose one under Large model")
        page.close()
    play.close()
