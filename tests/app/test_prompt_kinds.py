"""Messages, token ids and text with special tokens on the page: what is run, recorded, copied, compared and restored."""

from __future__ import annotations

import io
import json
import shlex
from typing import Any

import pytest
from browser import Lab

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.cli import main
from decodescope.app.page.layout import _settings_summary
from decodescope.app.runs.compare.comparison import parse_choices
from decodescope.app.runs.compare.settings_diff import choice_of_run, differences
from decodescope.app.runs.recipe import as_json, choice_from_header, from_json, recipe
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine import load, run
from decodescope.engine.core.conversation import Conversation

TALK = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": [{"type": "text", "text": "It's 2 < 3?"}]},
]
TEXT = Conversation.of({"messages": TALK, "tools": [{"type": "function", "function": {"name": "f"}}]}).text
NAMES = {"target": "lab-draft"}
CHOICES = [
    RunChoice(TEXT, max_new=3, prompt_kind="messages"),
    RunChoice("5 6 7", max_new=3, prompt_kind="ids"),
    RunChoice("<|user|>\nhi<|end|>\n<|assistant|>\n", max_new=3, prompt_kind="marks"),
]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The page's service with the smallest shipped model."""
    service = RunService("lab-draft", None, tmp_path_factory.mktemp("traces"))
    yield service
    service.close()


@pytest.mark.parametrize("choice", CHOICES, ids=lambda x: x.prompt_kind)
def test_the_page_runs_what_it_shows_and_puts_it_back(choice: RunChoice, play: RunService) -> None:
    read = play.encode_prompt(choice)
    assert read is not None and not read.why
    channel = play.start(choice)
    assert play._jobs[channel.run].wait(300)
    header = channel.wire.header
    assert header.prompt.tolist() == [*read.ids] and header.prompt_kind == choice.prompt_kind
    own = choice_of_run(play, channel)
    assert (own.prompt, own.prompt_kind, own.chat) == (choice.prompt, choice.prompt_kind, False)
    assert from_json(as_json(own)) == own and differences(play, header, own, own) == []
    assert choice_from_header(header).prompt_kind == choice.prompt_kind


@pytest.mark.parametrize("choice", CHOICES, ids=lambda x: x.prompt_kind)
def test_what_is_copied_reads_the_same_tokens(
    choice: RunChoice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    due = run("lab-draft", None, choice.source, max_new_tokens=3)
    command, _, rest = recipe(choice, NAMES, "command").partition(" <<'MESSAGES'\n")
    text = rest.removesuffix("\nMESSAGES")
    assert "\n" not in text and (text != "") == (choice.prompt_kind == "messages")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main([*shlex.split(command)[1:], "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["prompt_tokens"] == due.prompt and said["tokens"] == due.tokens
    code = recipe(choice, NAMES, "python")
    world: dict[str, Any] = {}
    exec(code, world)
    assert world["made"].prompt == due.prompt and world["made"].trace.header.prompt_kind == choice.prompt_kind


def test_messages_are_recognised_and_what_the_model_is_given_is_shown(play: RunService) -> None:
    for kind, given in (("text", ""), ("messages", "<|system|>\nBe short.")):
        said = _settings_summary(play, play.compose(RunChoice(TEXT, prompt_kind=kind)))
        assert (said["kind"], said["talk"]) == (kind, "2 messages and 1 tool")
        assert said["given"].startswith(given) and (said["given"] == "") == (kind == "text")
    assert _settings_summary(play, play.compose(RunChoice("Hi")))["talk"] == ""
    bare = _settings_summary(play, play.compose(RunChoice("5 6", prompt_kind="ids")))
    tokenizer = load("lab-draft").tokenizer
    assert tokenizer is not None and bare["given"] == tokenizer.decode([5, 6])


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (RunChoice("Hi", prompt_kind="messages"), "The prompt is no JSON"),
        (RunChoice('{"a": 1}', prompt_kind="messages"), "The prompt holds no messages"),
        (RunChoice("5 x", prompt_kind="ids"), 'The prompt holds "x", and token ids are whole numbers'),
        (RunChoice("99999999", prompt_kind="ids"), "the ids of lab-draft are 0 to 4095"),
    ],
)
def test_what_is_not_of_its_kind_is_refused_in_a_sentence(
    choice: RunChoice, why: str, play: RunService
) -> None:
    with pytest.raises((RequestRefusal, ValueError), match=why):
        channel = play.start(choice)
        play._jobs[channel.run].wait(300)
        raise ValueError(channel.state()["message"])


def test_a_comparison_reads_messages_too() -> None:
    said = {"seed": 1, "new": 2, "methods": ["plain", as_json(CHOICES[1])]}
    assert {x.prompt_kind for x in parse_choices({**said, "prompt": TEXT})} == {"messages"}
    assert {x.prompt_kind for x in parse_choices({**said, "prompt": "Hi"})} == {"text"}
    assert {x.prompt_kind for x in parse_choices({**said, "prompt": "5", "prompt_kind": "ids"})} == {"ids"}
    with pytest.raises(RequestRefusal, match="The kind of a prompt is one of text, marks, messages, ids"):
        parse_choices({**said, "prompt": "Hi", "prompt_kind": "song"})


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_pasted_messages_become_a_conversation_and_can_be_text_again(shipped: Lab) -> None:
    page = shipped.open()
    page.wait_for_selector("#ds-models .room")
    page.fill("#ds-prompt textarea", TEXT)
    page.wait_for_selector(".ds-talk >> text=Read as a conversation: 2 messages and 1 tool.")
    assert page.input_value("#ds-kind input") == "messages (JSON)"
    assert page.text_content(".ds-given pre").startswith("<|system|>\nBe short.")
    page.click(".ds-talk button")
    page.wait_for_selector(".ds-talk >> text=Read as text. It holds 2 messages and 1 tool.")
    assert page.input_value("#ds-kind input") == "text"
    page.fill("#ds-prompt textarea", "Once upon a time")
    page.wait_for_selector(".ds-talk", state="hidden")
