"""Conversations as production has them, by the templates of twelve families: the ids are those of transformers."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_families import FAMILIES, MARKS, READ_PARTS, TEXT_ARGUMENTS

from decodescope.engine.core.conversation import (
    Conversation,
    arguments_text,
    join_parts,
    map_arguments,
    map_content,
)
from decodescope.engine.model.checkpoint import message_forms
from decodescope.engine.model.checkpoint import tokenizer as tokenizers
from decodescope.engine.model.checkpoint.chat_template import ChatTemplates, TemplateError, render
from decodescope.engine.model.checkpoint.run_template import compile_template, try_render
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.session.load import SHIPPED

NAMED = {"bos_token": "<|begin|>", "eos_token": "<|stop|>", "pad_token": "<|pad|>", "unk_token": "<|unk|>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Say what the weather is like, <in> °C.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add numbers.",
            "parameters": {
                "type": "object",
                "properties": {"terms": {"type": "array", "items": {"type": "number"}}},
                "required": ["terms"],
            },
        },
    },
]
DOCUMENTS = [
    {"doc_id": 7, "title": "Harbours", "text": "Ada is at sea."},
    {"title": "Hills", "text": "Ben climbs é."},
]
SYSTEM = {"role": "system", "content": "Be short."}
ASKED = {"role": "user", "content": " What's it like in Zürich & <Bern>?\n"}
ANSWER = {"role": "assistant", "content": "Cold."}
ARGUMENTS = {"city": "Zürich", "days": 2, "exact": True, "more": None}


def called(arguments: Any, count: int = 1) -> dict[str, Any]:
    """A message that calls a tool."""
    one = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [copy.deepcopy(one) for _ in range(count)]}


RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": '{"cold": true}'}
PARTS = [{"type": "text", "text": "Look: "}, {"type": "text", "text": "what is it?"}]
WORK = [SYSTEM, ASKED, called(ARGUMENTS), RESULT, ANSWER, {"role": "user", "content": "And tomorrow?"}]
CONVERSATIONS: dict[str, Any] = {
    "a question": [ASKED],
    "a system turn": [SYSTEM, ASKED],
    "several turns": [SYSTEM, ASKED, ANSWER, ASKED],
    "without a system turn": [ASKED, ANSWER, ASKED],
    "tools": {"messages": [SYSTEM, ASKED], "tools": TOOLS},
    "a call and its result": {"messages": WORK[:4], "tools": TOOLS},
    "work": {"messages": WORK, "tools": TOOLS},
    "arguments as text": {"messages": [ASKED, called(json.dumps(ARGUMENTS)), RESULT], "tools": TOOLS},
    "two calls": {"messages": [ASKED, called(ARGUMENTS, 2), RESULT, RESULT], "tools": TOOLS},
    "no content": [ASKED, {**called({}), "content": None}, RESULT],
    "parts": [SYSTEM, {"role": "user", "content": PARTS}],
    "parts in every message": [
        {"role": "system", "content": PARTS}, {"role": "user", "content": PARTS},
        {"role": "assistant", "content": PARTS}, {"role": "user", "content": PARTS[:1]},
    ],
    "documents": {"messages": [ASKED], "documents": DOCUMENTS},
    "tools and documents": {"messages": [ASKED], "documents": DOCUMENTS, "tools": TOOLS},
    "a template by name": {"messages": [ASKED], "documents": DOCUMENTS, "chat_template": "rag"},
    "no thoughts": {"messages": [ASKED], "chat_template_kwargs": {"enable_thinking": False, "controls": {"length": "long"}}},
    "tools apart": {"messages": [ASKED], "tools": TOOLS, "chat_template_kwargs": {"tools_in_user_message": False}},
    "thoughts": [ASKED, {**ANSWER, "reasoning_content": "hm"}, ASKED],
    "no question": {"messages": [ASKED, ANSWER], "add_generation_prompt": False},
    "wrong turns": [ASKED, ASKED],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped tokenizer with the marks of all families."""
    path = tmp_path_factory.mktemp("families")
    shutil.copy(SHIPPED / "lab" / "tokenizer.json", path)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **NAMED, "additional_special_tokens": MARKS}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    """The folder as transformers reads it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def chats(folder: Path) -> Callable[[str], Tokenizer]:
    """Family -> the folder's tokenizer with its templates."""
    ours = Tokenizer.from_folder(folder)

    def with_templates(family: str) -> Tokenizer:
        given = FAMILIES[family]
        if isinstance(given, str):
            ours.templates = ChatTemplates(given)
        else:
            ours.templates = ChatTemplates(given["default"], ("rag", "tool_use"), named=given)
        return ours

    return with_templates


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates are rendered by the same program, without a process for each conversation."""

    def render_here(source: str, jobs: Any) -> list[Any]:
        answers = [try_render(compile_template(source), copy.deepcopy(words)) for words in jobs]
        return [x["text"] if "text" in x else TemplateError(x.get("refused", "failed")) for x in answers]

    def render_one(source: str, words: Any) -> str:
        text = render_here(source, [words])[0]
        if isinstance(text, TemplateError):
            raise text
        return str(text)

    monkeypatch.setattr(message_forms, "render_each", render_here)
    monkeypatch.setattr(tokenizers, "render", render_one)


def reference_ids(theirs: Any, family: str, asked: Any) -> list[int] | None:
    """What transformers makes of a request, given the forms that its template reads; None if the template refuses it."""
    from jinja2.exceptions import TemplateError as JinjaError

    request = {"messages": asked} if isinstance(asked, list) else asked
    read = (
        arguments_text if family in TEXT_ARGUMENTS else lambda x: json.loads(x) if isinstance(x, str) else x
    )
    messages = map_arguments(request["messages"], read)
    joined = map_content(messages, join_parts)
    theirs.chat_template = FAMILIES[family]
    for form in (
        (messages, joined) if family in READ_PARTS else (joined,)
    ):  # one may read parts of users alone
        with contextlib.suppress(JinjaError, TypeError):
            return list(
                theirs.apply_chat_template(
                    form,
                    tools=request.get("tools"),
                    documents=request.get("documents"),
                    chat_template=request.get("chat_template"),
                    add_generation_prompt=request.get("add_generation_prompt", True),
                    **request.get("chat_template_kwargs", {}),
                )["input_ids"]
            )
    return None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("in_this_process")
def test_every_conversation_has_the_ids_of_transformers(family: str, chats: Any, theirs: Any) -> None:
    ours, read = chats(family), 0
    for name, asked in CONVERSATIONS.items():
        if name == "a template by name" and family != "command r":
            continue
        due = reference_ids(theirs, family, asked)
        if due is None:
            with pytest.raises(TemplateError):
                ours.chat(Conversation.of(asked))
            continue
        assert ours.chat(Conversation.of(asked)) == due, name
        read += 1
    assert read >= 5, "the family needs conversations that it reads"


@pytest.mark.parametrize("family", FAMILIES)
def test_work_with_tools_has_the_ids_of_transformers(family: str, chats: Any, theirs: Any) -> None:
    """By the program that renders templates in a process of its own."""
    due = reference_ids(theirs, family, CONVERSATIONS["work"])
    if due is None:
        with pytest.raises(TemplateError, match=r"^The chat template"):
            chats(family).chat(Conversation.of(CONVERSATIONS["work"]))
        return
    assert chats(family).chat(Conversation.of(CONVERSATIONS["work"])) == due
    assert len({x for x in due if x in chats(family).marks}) >= 2, "the template writes marks"


def test_what_a_template_refuses_is_one_sentence(chats: Any) -> None:
    for family, said, why in [
        ("gemma 2", [SYSTEM, ASKED], "There is no system role"),
        ("gemma 2", [ASKED, ASKED], "Roles must alternate: user/assistant/user/..."),
        (
            "mistral v3",
            [ASKED, {**called({}), "content": "x"}, ASKED],
            "User and assistant must take turns behind",
        ),
        ("llama 3.1", [ASKED, called({}, 2)], "This model makes one call at a time"),
    ]:
        with pytest.raises(TemplateError, match=r"^The chat template refuses this conversation: ") as error:
            chats(family).chat(Conversation.of(said))
        assert why.rstrip(".") in str(error.value) and str(error.value).endswith("; use plain text instead.")


def test_a_mark_in_a_tool_or_a_document_stays_text(chats: Any) -> None:
    ours, mark = chats("granite"), "<|turn|>"
    tools, documents = copy.deepcopy(TOOLS), copy.deepcopy(DOCUMENTS)
    plain = ours.chat(Conversation([ASKED], tools, documents))
    tools[0]["function"]["description"] += mark
    documents[0]["text"] += mark
    typed = ours.chat(Conversation([ASKED], tools, documents))
    at = next(x for x in ours.marks if ours.added[x] == mark)
    assert typed.count(at) == plain.count(at) > 3
    assert ours.decode(typed).count(mark) == ours.decode(plain).count(mark) + 2


def test_text_that_a_template_has_made_is_read_with_its_marks(chats: Any) -> None:
    for family in ("llama 3.1", "zephyr", "mistral v3"):
        ours = chats(family)
        talk = Conversation.of([ASKED])
        text = render(ours.templates.source, ours.template_words(talk))
        assert ours.encode_marks(text) == ours.chat(talk) != ours.encode(text)
    assert ours.encode_marks("a\ud800") == ours.encode_plain("a\ufffd")


def test_a_template_that_is_not_there_is_refused(chats: Any) -> None:
    asked = {"messages": [ASKED], "chat_template": "rags"}
    with pytest.raises(
        TemplateError, match=r"chat templates named default, tool_use, rag and none named rags; leave"
    ):
        chats("command r").chat(Conversation.of(asked))
    with pytest.raises(TemplateError, match=r"names no chat templates and none named rags"):
        chats("zephyr").chat(Conversation.of(asked))
