"""What a run takes as its prompt: messages, token ids and templated text are read, recorded and repeated."""

from __future__ import annotations

from typing import Any

import pytest

from decodescope.engine import load, run
from decodescope.engine.core.conversation import Conversation
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.model.checkpoint.prompt_notes import prompt_notes
from decodescope.engine.model.checkpoint.prompt_source import PromptSource, parse_ids
from decodescope.engine.session.load import Model
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace.query.titles import title

TALK: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "Say the word cat."}]},
    {"role": "assistant", "content": "cat"},
    {"role": "user", "content": "And dog?"},
]


@pytest.fixture(scope="module")
def model() -> Model:
    """The smallest shipped model with a chat template."""
    return load("lab-draft", device="cpu")


def test_messages_are_read_by_the_template_and_recorded_as_they_were_given(model: Model) -> None:
    assert model.tokenizer is not None
    plain = [
        {**x, "content": x["content"] if isinstance(x["content"], str) else "Say the word cat."} for x in TALK
    ]
    done = run(model, None, TALK, max_new_tokens=3)
    asked = run(model, None, {"messages": TALK, "temperature": 1, "stream": True}, max_new_tokens=3)
    header = done.trace.header
    assert done.prompt == asked.prompt == model.tokenizer.chat(plain)
    assert (header.chat, header.prompt_kind) == (True, "messages")
    assert Conversation.of(TALK).text == header.turn and title(header).endswith(": And dog?")
    assert asked.trace.header.turn == header.turn and done.notes == []
    assert asked.notes == [
        "these keys of the request are not read: temperature, stream; the run's own settings count."
    ]


def test_ids_and_text_with_special_tokens_are_recorded_as_such(model: Model) -> None:
    assert model.tokenizer is not None
    due = model.tokenizer.chat([{"role": "user", "content": "hi"}])
    text = model.tokenizer.decode(due)
    marked, given = (
        run(model, None, text, marks=True, max_new_tokens=2),
        run(model, None, due, max_new_tokens=2),
    )
    assert marked.prompt == given.prompt == due != run(model, None, text, max_new_tokens=1).prompt
    assert marked.tokens == given.tokens
    assert [x.trace.header.prompt_kind for x in (marked, given)] == ["marks", "ids"]
    assert marked.trace.header.turn == "" and not marked.trace.header.chat and marked.notes == []


def test_a_fork_reads_the_prompt_of_its_run(model: Model) -> None:
    done = run(model, "prompt_lookup", TALK, max_new_tokens=6)
    fork = Fork(model, done.trace.header, done.trace.steps, 1, max_new_tokens=8)
    assert fork.header.prompt.tolist() == done.prompt
    assert (fork.header.prompt_kind, fork.header.turn) == ("messages", done.trace.header.turn)


@pytest.mark.parametrize("value", ["[1, 2,3]", "1 2 3", "1,2\n3 ", " 1, 2, 3"])
def test_token_ids_are_whole_numbers_with_commas_or_spaces(value: str) -> None:
    assert parse_ids(value) == [1, 2, 3]
    assert PromptSource.of([1, 2, 3]) == PromptSource("1 2 3", "ids")


@pytest.mark.parametrize(
    ("value", "why"), [("1 b", 'holds "b"'), ("", "is empty"), ("1,,-2", 'holds "-2"'), ("1.5", "1.5")]
)
def test_what_is_no_token_id_is_refused(value: str, why: str) -> None:
    with pytest.raises(
        Refusal, match="token ids are whole numbers with commas or spaces between them"
    ) as error:
        parse_ids(value, "--ids")
    assert why in str(error.value)


def test_ways_of_reading_that_contradict_each_other_are_refused(model: Model) -> None:
    for value, more in (("a", {"chat": True}), ([1], {}), (TALK, {})):
        with pytest.raises(
            ParamError, match="marks reads the special tokens of a text that a template has made"
        ):
            run(model, None, value, marks=True, **more)
    with pytest.raises(Refusal, match="has a part of the type 'image_url'"):
        run(model, None, [{"role": "user", "content": [{"type": "image_url"}]}])
    with pytest.raises(Refusal, match=r"the prompt holds token id 100000000; the ids of lab-draft are 0 to"):
        run(model, None, [10**8])


def test_a_text_with_special_tokens_gets_a_note_where_it_lacks_its_beginning(model: Model) -> None:
    assert model.tokenizer is not None
    before = model.tokenizer.front
    try:
        model.tokenizer.front = [0]
        note = prompt_notes(model.tokenizer, [PromptSource("a", "marks")], [0])
        assert len(note) == 1 and "gets nothing before it, and this model usually gets '<|end|>'" in note[0]
        assert prompt_notes(model.tokenizer, [PromptSource("<|end|>a", "marks")], [0]) == []
    finally:
        model.tokenizer.front = before
