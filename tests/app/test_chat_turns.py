"""A prompt as a user's turn in the model's chat template, and texts that continue after the end token.

Both are tested in what is run, recorded, copied and restored, and on the page.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import KEPT, Lab
from toylab import Words

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs.catalogue.examples import examples
from decodescope.app.runs.compare.settings_diff import choice_of_run, differences, notes
from decodescope.app.runs.recipe import as_json, choice_from_header, from_json, recipe
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine import Method, load, run
from decodescope.engine.session.replay.fork import Fork

ASKED = "Say hello."


def test_the_text_goes_on_after_the_end_token_where_that_is_asked_for() -> None:
    model = load("lab")
    ends = run(model, None, ASKED, chat=True, max_new_tokens=200)
    assert ends.trace.end.reason == "stop_token" and ends.tokens[-1] in model.stop_tokens
    goes = run(model, None, ASKED, chat=True, ignore_eos=True, max_new_tokens=len(ends.tokens) + 5)
    assert goes.trace.end.reason == "max_new_tokens" and goes.tokens[: len(ends.tokens)] == ends.tokens
    header = goes.trace.header
    assert (header.chat, header.turn, header.stop_tokens) == (True, ASKED, [])
    choice = choice_from_header(header)
    assert (choice.prompt, choice.chat, choice.ignore_eos) == (ASKED, True, True)
    assert from_json(as_json(choice)) == choice
    words = shlex.split(recipe(choice, {}, "command"))
    assert {"--chat", "--ignore-eos"} <= {*words} and f"--prompt={ASKED}" in words
    forked = Fork(model, header, goes.trace.steps, 1, max_new_tokens=9)
    assert (forked.header.chat, forked.header.turn) == (True, ASKED)


def test_the_page_runs_what_it_shows(tmp_path: Any) -> None:
    play = RunService("lab", None, tmp_path)
    try:
        choice = RunChoice(ASKED, max_new=4, chat=True, ignore_eos=True)
        read = play.encode_prompt(choice)
        assert read is not None and read.text == f"<|user|>\n{ASKED}<|end|>\n<|assistant|>\n"
        channel = play.start(choice)
        assert play._jobs[channel.run].wait(300)
        header = channel.wire.header
        assert header.prompt.tolist() == [*read.ids] and (header.turn, header.stop_tokens) == (ASKED, [])
        own = choice_of_run(play, channel)
        assert (own.prompt, own.chat, own.ignore_eos) == (ASKED, True, True)
        plain = replace(own, chat=False, ignore_eos=False)
        assert differences(play, header, own, own) == []
        assert differences(play, header, own, plain) == [
            "without the chat template",
            "ending at the end token",
        ]
        assert differences(play, header, own, replace(own, reference=True)) == [
            "with a full cache as reference"
        ]
    finally:
        play.close()


def test_an_example_that_was_a_user_s_turn_is_put_back_as_one(play: RunService) -> None:
    turns = [x for x in map(play.find, (x.run for x in examples())) if x.wire.header.chat]
    assert all(choice_of_run(play, x).prompt == x.wire.header.turn for x in turns)
    turns = [x for x in turns if x.wire.header.model["name"] == "lab"]  # whose tokenizer is always here
    assert len(turns) >= 4
    tokenizer = load("lab").tokenizer
    for channel in turns:
        choice = choice_of_run(play, channel)
        assert choice.chat and choice.prompt == channel.wire.header.turn
        due = channel.wire.header.prompt.tolist()
        assert tokenizer.chat([{"role": "user", "content": choice.prompt}]) == due


def test_a_model_without_a_template_refuses_a_turn(play: RunService) -> None:
    with pytest.raises(
        RequestRefusal, match=r"^toy has no chat template: leave it out, or choose a model that has one\.$"
    ):
        play.start(RunChoice("abc", chat=True))
    header = run(play.models.loaded_models()["target"], Method(), [1, 2], max_new_tokens=2).trace.header
    assert (
        not header.chat
        and header.turn == ""
        and isinstance(play.models.loaded_models()["target"].tokenizer, Words)
    )


def test_the_page_has_notes_on_special_tokens_in_a_prompt(play: RunService, tmp_path: Path) -> None:
    shipped = RunService("lab-draft", None, tmp_path)
    try:
        what = "the prompt holds the text of special tokens ('<|end|>'), which is read as plain text"
        assert notes(shipped, RunChoice("a<|end|>")) == [
            f"{what}: the choice text with special tokens reads them as such, or the switch Chat template writes them."
        ]
        assert notes(shipped, RunChoice("a<|end|>", chat=True)) == [f"{what}."]
        assert notes(shipped, RunChoice("a", chat=True)) == notes(play, RunChoice("a<|end|>")) == []
        shipped.models.reader("lab-draft").tokenizer.remarks.append("x is not followed.")
        assert notes(shipped, RunChoice("a")) == ["lab-draft: x is not followed."]
    finally:
        shipped.close()


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_a_note_comes_under_the_prompt_and_goes_with_what_it_is_about(shipped: Lab) -> None:
    page = shipped.open()
    page.wait_for_selector("#ds-models .room")
    page.fill("#ds-prompt textarea", "a <|end|> <b>b</b>")
    page.wait_for_selector(".ds-remarks li >> text=which is read as plain text")
    assert page.text_content(".ds-remarks").startswith(
        "the prompt holds the text of special tokens ('<|end|>')"
    )
    page.fill("#ds-prompt textarea", ASKED)
    page.wait_for_selector(".ds-remarks", state="hidden")


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_the_switches_say_what_the_model_is_given_and_are_run_and_copied(shipped: Lab) -> None:
    page = shipped.open()
    page.wait_for_selector("#ds-models .room")
    page.fill("#ds-prompt textarea", ASKED)
    page.get_by_label("Chat template").check()
    page.wait_for_selector(".ds-given pre >> text=<|assistant|>")
    assert page.text_content(".ds-given pre") == f"<|user|>\n{ASKED}<|end|>\n<|assistant|>\n"
    page.get_by_label("Ignore the end token").check()
    page.get_by_label("New tokens").fill("3")
    page.wait_for_function(f"{KEPT}.chat && {KEPT}.ignore_eos && {KEPT}.new === 3")
    page.click("#ds-run")
    # the example has also ended
    page.wait_for_function("location.hash && document.documentElement.dataset.dsRun === 'done'")
    page.wait_for_selector("#ds-copy-command >> visible=true")
    page.click("#ds-copy-command")
    page.wait_for_function(
        "document.querySelector('#ds-copied textarea')?.value.includes('--chat --ignore-eos')"
    )
    link = page.evaluate(
        "fetch('/ds/recipe', {method: 'POST', body: JSON.stringify({way: 'link',"
        " settings: localStorage.getItem('decodescope-settings')})}).then(x => x.json())"
    )["text"]
    again = shipped.open("/" + link)
    again.wait_for_selector(".ds-given pre >> text=<|assistant|>")
    assert again.get_by_label("Ignore the end token").is_checked()
    again.get_by_label("Chat template").uncheck()
    again.wait_for_selector(".ds-given", state="hidden")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_the_switch_is_disabled_with_the_reason_where_there_is_no_template(lab: Lab) -> None:
    page = lab.open()
    page.wait_for_selector("#ds-chat >> text=toy has no chat template.")
    assert page.get_by_label("Chat template").is_disabled()
    assert page.get_by_label("Ignore the end token").is_enabled()
