"""Conversations: what is read as messages, and the sentence for what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from decodescope.engine.core.conversation import (
    Conversation,
    ConversationError,
    find_conversation,
    parse_conversation,
    sharegpt_conversation,
)

USER = {"role": "user", "content": "Hi"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}


def test_a_list_of_messages_and_a_request_are_read() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    request = {
        "model": "m", "temperature": 0.5, "messages": [USER], "tools": tools, "documents": [{"text": "d"}],
        "chat_template": "rag", "chat_template_kwargs": {"enable_thinking": False}, "add_generation_prompt": False,
    }  # fmt: skip
    read = Conversation.of(request)
    assert Conversation.of([USER]) == Conversation([USER]) == Conversation.of_turn("Hi")
    assert (read.tools, read.documents, read.template, read.asks) == (tools, [{"text": "d"}], "rag", False)
    assert read.unread == ("model", "temperature") and read.summary == "1 message, 1 tool and 1 document"
    assert parse_conversation(read.text, "x").record() == read.record()
    assert Conversation([USER, USER]).summary == "2 messages" and "tools" not in Conversation([USER]).record()


def test_parts_of_text_are_read_by_any_of_their_names() -> None:
    parts = [
        "a",
        {"type": "text", "text": "b"},
        {"type": "input_text", "text": "c"},
        {"type": "output_text", "text": "d"},
    ]
    talk = Conversation.of([{"role": "user", "content": parts}])
    assert talk.messages[0]["content"] == [{"type": "text", "text": x} for x in "abcd"]
    assert talk.last_question == "a\nb\nc\nd"
    assert Conversation.of([USER, {"role": "assistant", "content": "x"}]).last_question == "Hi"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"prompt": "a"}, r"The prompt holds no messages: give a list"),
        ("Hi", r"The prompt holds no messages"),
        ([], r"holds an empty list of messages: give at least one\."),
        ([USER, "Hi"], r"^Message 2 of the prompt is no object"),
        ([{"content": "Hi"}], r"^Message 1 of the prompt has no role: give system, user, assistant or tool\."),
        ([{"role": "user"}], r"^Message 1 of the prompt has no content"),
        ([{"role": "user", "content": 5}], r"its content is 5; give a text, or a list of text parts\."),
        ([USER, {"role": "user", "content": [IMAGE]}], r"^Message 2 of .* has a part of the type 'image_url', and models are "
         r"given text alone here: leave that part out\.$"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"has a part that is not"),
        ([{"role": "user", "content": [{}]}], r"has a part that is not"),
        ([{"role": "assistant", "tool_calls": {}}], r"tool_calls must be a list of objects"),
        ({"messages": [USER], "tools": {}}, r"^The tools of the prompt must be a list of objects"),
        ({"messages": [USER], "documents": ["d"]}, r"^The documents of the prompt must be a list of objects"),
        ({"messages": [USER], "chat_template_kwargs": []}, None),
        ({"messages": [USER], "chat_template_kwargs": [1]}, r"chat_template_kwargs of the prompt is no object"),
        ({"messages": [USER], "chat_template_kwargs": {"tools": 1}}, r"holds 'tools': give further variables"),
        ({"messages": [USER], "chat_template": "{{ 1 }}"}, r"is no name: name one of the model's own templates"),
        ({"messages": [USER], "add_generation_prompt": 1}, r"must be true or false\."),
    ],
)  # fmt: skip
def test_what_is_no_conversation_is_refused_in_one_sentence(value: Any, why: str | None) -> None:
    if why is None:
        assert Conversation.of(value).options == {}
        return
    with pytest.raises(ConversationError, match=why) as error:
        Conversation.of(value)
    assert str(error.value).isprintable()


def test_a_text_is_a_conversation_only_if_it_holds_messages() -> None:
    assert find_conversation(f"\n {json.dumps([USER])}") == Conversation([USER])
    for text in ("Hi", "[1, 2]", '{"a": 1}', "[" * 100_000, '[{"role": "user"}]', ""):
        assert find_conversation(text) is None
    with pytest.raises(ConversationError, match=r"^X is no JSON \(.*\): give messages as JSON\."):
        parse_conversation("{", "x")


def test_sharegpt_goes_up_to_its_last_question() -> None:
    turns = [("system", "s"), ("human", "a"), ("gpt", "b"), ("human", "c"), ("gpt", "d"), ("gpt", "e")]
    talk = sharegpt_conversation([{"from": x, "value": y} for x, y in turns], "line 1")
    roles = ["system", "user", "assistant", "user"]
    assert [(x["role"], x["content"]) for x in talk.messages] == list(zip(roles, "sabc", strict=True))
    for odd in (
        [],
        "a",
        [{"from": "gpt", "value": "a"}],
        [{"from": "martian", "value": "a"}],
        [{"from": "human"}],
        [5],
    ):
        with pytest.raises(ConversationError, match=r"[Ll]ine 1"):
            sharegpt_conversation(odd, "line 1")
