"""The shown run and the run that the controls would make: copies refer to the former, and the latter is marked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from browser import KEPT, Lab, option
from starlette.testclient import TestClient
from toylab import finished, speculative

from decodescope.app.runs.catalogue.examples import shipped_examples
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.compare.settings_diff import choice_of_run
from decodescope.app.runs.recipe import as_json, recipe
from decodescope.app.runs.run_service import RunService

PLAIN = {"drafter": "none", "sampler": ["greedy"]}


def test_what_differs_is_told_part_by_part(play: RunService, client: TestClient) -> None:
    run = finished(play, prompt="hello", max_new=6, seed=3)

    def differs(**change: Any) -> list[str]:
        said = client.post(
            f"/ds/run/{run.run}/differs",
            json={"settings": as_json(replace(choice_of_run(play, run), **change))},
        )
        assert said.status_code == 200, said.text
        return list(said.json()["differs"])

    assert differs() == [] and differs(prompt="hello") == [], "the same tokens are the same prompt"
    assert differs(prompt="other") == ["another prompt"] and differs(seed=4) == ["seed 4, not 3"]
    assert differs(max_new=7) == ["7 new tokens, not 6"]
    warm = {"drafter": {"max_draft_tokens": 3, "width": 2}, "temperature": {"temperature": 0.5}}
    assert differs(settings=warm) == ["temperature 0.5, not 1.0"]
    greedy = differs(names=PLAIN, settings={})
    assert greedy == [
        "drafter No draft (autoregressive), not Draft model",
        "sampler greedy, not temperature",
    ], greedy
    assert differs(models={"target": "toy", "draft": "toy"}) == ["draft model toy, not toy-draft"]
    assert client.post(f"/ds/run/{'0' * 16}/differs", json={"settings": "{}"}).status_code == 404
    assert client.post(f"/ds/run/{run.run}/differs", json={"settings": "x"}).status_code == 422


def test_copies_are_of_the_run(play: RunService, client: TestClient) -> None:
    run = finished(play, prompt="hello", max_new=6, seed=3)
    for way in ("command", "python", "link"):
        said = client.get(f"/ds/run/{run.run}/recipe?way={way}").json()
        assert said == {"text": recipe(choice_of_run(play, run), {}, way), "way": way, "note": ""}
    command = client.get(f"/ds/run/{run.run}/recipe").json()["text"]
    assert (
        "--model toy --draft toy-draft" in command
        and "--seed 3" in command
        and "temperature.temperature" not in command
    )
    forked = client.post(f"/ds/run/{run.run}/fork", json={"step": 1, "change": {"seed": 5}}).json()["run"]
    assert play._jobs[forked].wait(300)
    assert "forked off" in client.get(f"/ds/run/{forked}/recipe").json()["note"]
    run.wire.header.chat = True  # as when the turn was given as tokens
    assert "give it with --chat" in client.get(f"/ds/run/{run.run}/recipe").json()["note"]
    run.wire.header.turn = "hello"
    assert "--chat" in (said := client.get(f"/ds/run/{run.run}/recipe").json())["text"] and not said["note"]
    choice = speculative(max_new=9)
    written = client.post("/ds/recipe", json={"settings": as_json(choice), "way": "command"}).json()
    assert written["text"] == recipe(choice, play.models.names, "command")
    assert client.post("/ds/recipe", json={"settings": as_json(choice), "way": "verse"}).status_code == 422


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_a_picture_whose_controls_have_changed_is_marked_and_copied_as_it_is(shipped: Lab) -> None:
    page = shipped.open()
    page.wait_for_selector("#ds-copy-command >> visible=true")
    page.wait_for_selector("#ds-models .room")
    assert page.locator(".ds-next").is_hidden(), "the controls begin with the run that is shown"
    page.get_by_label("Seed").fill("12")
    page.wait_for_selector(".ds-next >> text=The controls are those of the next run: seed 12, not 9.")
    example = shipped.play.find(shipped_examples()[0].run)
    page.click("#ds-copy-command")
    page.wait_for_selector("#ds-copied textarea[aria-label=command]")
    assert page.input_value("#ds-copied textarea") == recipe(
        choice_of_run(shipped.play, example), {}, "command"
    )
    page.click("#ds-copy-next-command")
    page.wait_for_function("document.querySelector('#ds-copied textarea').value.includes('--seed 12')")
    page.click(".ds-next button")
    page.wait_for_selector(".ds-next", state="hidden")
    assert page.get_by_label("Seed").input_value() == "9"


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_after_a_link_the_controls_are_marked_and_can_follow_it(lab: Lab) -> None:
    assert "plain" in PRESETS
    run = finished(lab.play, prompt="hello", max_new=6, seed=3)
    page = lab.open(f"/#run={run.run}")
    page.wait_for_selector(".ds-next >> text=/seed 9, not 3/")
    page.click(".ds-next button")
    page.wait_for_selector(".ds-next", state="hidden")
    assert (
        page.get_by_label("Seed").input_value() == "3"
        and page.get_by_label("New tokens").input_value() == "6"
    )


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_a_prompt_that_the_models_do_well_is_put_into_the_controls(shipped: Lab) -> None:
    page = shipped.open()
    page.wait_for_selector("#ds-models .room")
    texts = page.locator(".ds-prompts button")
    said = texts.all_inner_texts()
    assert texts.count() == len(set(said)) == 7 and said[-1] == "more"
    due = texts.nth(1).get_attribute("title")
    texts.nth(1).click()
    page.wait_for_function("due => document.querySelector('#ds-prompt textarea').value == due", arg=due)
    page.wait_for_function(f"{KEPT}.chat === true")
    page.wait_for_selector(".ds-next >> text=another prompt")
    texts.last.click()
    more = texts.all_inner_texts()
    assert more[:6] == said[:6] and len(set(more)) == len(more) > 7 and "more" not in more
    assert sum(x.startswith("…") for x in more) >= 2, "those that begin alike are told apart by their ends"
    assert page.evaluate("document.activeElement.textContent") == more[6]
    option(page, "#ds-preset", PRESETS["canvas"].title)  # its model brings list tasks
    page.wait_for_selector(".ds-prompts button >> text=/^sort: /")
    assert not {*texts.all_inner_texts()} & {*more}


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_a_preset_for_a_model_chooses_it_and_one_for_any_goes_back(shipped: Lab) -> None:
    page = shipped.open()
    option(page, "#ds-preset", PRESETS["canvas"].title)
    page.wait_for_function(f"{KEPT}.models?.target == 'lab-mdm' && {KEPT}.names.selector == 'threshold'")
    page.wait_for_function(f"document.querySelector('#ds-preset input').value == '{PRESETS['canvas'].title}'")
    option(page, "#ds-preset", PRESETS["cllm"].title)
    page.wait_for_function(f"{KEPT}.models?.target == 'lab+cllm'")
    page.wait_for_function(f"document.querySelector('#ds-preset input').value == '{PRESETS['cllm'].title}'")
    option(page, "#ds-preset", PRESETS["jacobi"].title)
    page.wait_for_function(f"{KEPT}.models?.target == 'lab' && {KEPT}.models.draft == 'lab-draft'")
    page.wait_for_function(f"document.querySelector('#ds-preset input').value == '{PRESETS['jacobi'].title}'")
