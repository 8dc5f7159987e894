"""A conversation: the messages of a prompt as the OpenAI API has them, with the tools and documents that belong to them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .refusal import Refusal

Message = dict[str, Any]
TEXT_PARTS = ("text", "input_text", "output_text")  # types of content parts that are text
ANSWERED_BY = (
    "tool_calls",
    "reasoning_content",
    "reasoning",
    "thinking",
)  # a message with one may lack content
# keys of a request that are read; all others belong to a server
READ = ("messages", "tools", "documents", "chat_template", "chat_template_kwargs", "add_generation_prompt")
ROLES = {  # of ShareGPT's "from" -> of a message
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "bing": "assistant", "bard": "assistant", "system": "system", "tool": "tool", "observation": "tool",
    "function_response": "tool",
}  # fmt: skip
RESERVED = ("messages", "tools", "documents")


class ConversationError(Refusal):
    """Messages cannot be read. The message is one sentence, in which characters that do not print are escaped."""

    def __init__(self, message: str):
        super().__init__("".join(x if x.isprintable() else ascii(x)[1:-1] for x in message))


@dataclass(frozen=True)
class Conversation:
    """What a chat template is given.

    messages:  each with `role`, and with `content`: a text, or text parts
    tools, documents: as JSON; None: none were given
    options:   further variables of the template (`chat_template_kwargs`)
    template:  the name of one of the model's templates; empty: the one that fits
    asks:      whether the text ends where the model answers
    unread:    keys of a request that have no effect here
    """

    messages: Sequence[Message]
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    template: str = ""
    asks: bool = True
    unread: tuple[str, ...] = ()

    @classmethod
    def of_turn(cls, text: str) -> Conversation:
        """A conversation of one user's turn."""
        return cls([{"role": "user", "content": text}])

    @classmethod
    def of(cls, value: Any, where: str = "the prompt") -> Conversation:
        """The conversation in a JSON value: a list of messages, or a request with `messages`.

        Raises ConversationError, with the number of the message.
        """
        if isinstance(value, cls):
            return value
        asked = {"messages": value} if isinstance(value, list) else value
        if not isinstance(asked, Mapping) or not isinstance(asked.get("messages"), list):
            raise ConversationError(
                f'{_capital(where)} holds no messages: give a list of {{"role": ..., "content": ...}}, or an object with '
                '"messages".'
            )
        messages = asked["messages"]
        if not messages:
            raise ConversationError(f"{_capital(where)} holds an empty list of messages: give at least one.")
        options = asked.get("chat_template_kwargs") or {}
        template = asked.get("chat_template") or ""
        asks = asked.get("add_generation_prompt", True)
        if not isinstance(options, Mapping) or (odd := next((x for x in RESERVED if x in options), None)):
            what = "is no object" if not isinstance(options, Mapping) else f"holds {odd!r}"
            raise ConversationError(
                f"The chat_template_kwargs of {where} {what}: give further variables of the template, such as "
                '{"enable_thinking": false}.'
            )
        if not isinstance(template, str) or re.search(r"[{}\n]", template):
            raise ConversationError(
                f"The chat_template of {where} is no name: name one of the model's own templates, such as tool_use."
            )
        if not isinstance(asks, bool):
            raise ConversationError(f"The add_generation_prompt of {where} must be true or false.")
        return cls(
            [_read_message(x, i, where) for i, x in enumerate(messages, 1)],
            _objects(asked, "tools", where),
            _objects(asked, "documents", where),
            options,
            template,
            asks,
            tuple(str(x) for x in asked if x not in READ),
        )

    def record(self) -> dict[str, Any]:
        """The request that `of` reads as this conversation."""
        said: dict[str, Any] = {"messages": [dict(x) for x in self.messages]}
        more = {
            "tools": self.tools,
            "documents": self.documents,
            "chat_template_kwargs": dict(self.options) or None,
            "chat_template": self.template or None,
            "add_generation_prompt": None if self.asks else False,
        }
        return said | {name: value for name, value in more.items() if value is not None}

    @property
    def text(self) -> str:
        """The request as one line of JSON."""
        return json.dumps(self.record(), ensure_ascii=False)

    @property
    def last_question(self) -> str:
        """The text of the last turn of a user, which names the conversation in lists; of the last message if there is none."""
        asked = [x for x in self.messages if x.get("role") == "user"]
        content = (asked or [*self.messages])[-1].get("content")
        return join_parts(content) if isinstance(content, list) else str(content or "")

    @property
    def summary(self) -> str:
        """How many messages and tools there are: "3 messages and 1 tool"."""
        counts = {"message": self.messages, "tool": self.tools or (), "document": self.documents or ()}
        words = [f"{len(x)} {name}{'s' * (len(x) != 1)}" for name, x in counts.items() if x]
        return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + words[-1:])


def parse_conversation(text: str, where: str) -> Conversation:
    """The conversation in a JSON text. Raises ConversationError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConversationError(
            f"{_capital(where)} is no JSON ({str(error)[:80]}): give messages as JSON."
        ) from None
    return Conversation.of(value, where)


def find_conversation(text: str) -> Conversation | None:
    """The conversation that a text is, for an input that takes any text; None if it is none or cannot be read."""
    if not text.lstrip().startswith(("[", "{")):
        return None
    try:
        return parse_conversation(text, "the prompt")
    except ConversationError:
        return None


def sharegpt_conversation(turns: Any, where: str) -> Conversation:
    """A conversation in ShareGPT's form, [{"from": "human", "value": "..."}], up to its last question.

    What the model answered to that is left out, since it answers here. Raises ConversationError.
    """
    if not isinstance(turns, list) or not turns:
        raise ConversationError(f"The conversations of {where} are no list of turns.")
    messages = []
    for i, turn in enumerate(turns, 1):
        said = turn if isinstance(turn, dict) else {}
        role = ROLES.get(str(said.get("from")))
        if role is None or not isinstance(said.get("value"), str):
            raise ConversationError(
                f'Turn {i} of {where} is not {{"from": ..., "value": "..."}} of human, gpt, system or tool.'
            )
        messages.append({"role": role, "content": said["value"]})
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    if not messages:
        raise ConversationError(
            f"{_capital(where)} holds answers alone: give a conversation with a question."
        )
    return Conversation(messages)


def join_parts(content: Sequence[Any]) -> str:
    """The texts of content parts, a line each: what a template that knows no parts is given."""
    return "\n".join(x["text"] for x in content)


def map_content(messages: Sequence[Message], change: Any) -> list[Message]:
    """The messages with `change` applied to each content that is a list of parts."""
    return [
        {**x, "content": change(x["content"])} if isinstance(x.get("content"), list) else x for x in messages
    ]


def map_arguments(messages: Sequence[Message], change: Any) -> list[Message]:
    """The messages with `change` applied to the arguments of each tool call."""

    def changed(call: Any) -> Any:
        inner = call.get("function") if isinstance(call, dict) else None
        if isinstance(inner, dict) and "arguments" in inner:
            return {**call, "function": {**inner, "arguments": change(inner["arguments"])}}
        if isinstance(call, dict) and "arguments" in call:
            return {**call, "arguments": change(call["arguments"])}
        return call

    return [
        {**x, "tool_calls": [changed(y) for y in x["tool_calls"]]}
        if isinstance(x.get("tool_calls"), list)
        else x
        for x in messages
    ]


def call_arguments(call: Any) -> list[Any]:
    """The arguments of a tool call, alone in a list; an empty list if it has none."""
    inner = call.get("function", call) if isinstance(call, Mapping) else {}
    return [inner["arguments"]] if isinstance(inner, Mapping) and "arguments" in inner else []


def arguments_object(arguments: Any) -> Any:
    """The arguments of a call as an object, where they are the JSON text of one; else as they are."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def arguments_text(arguments: Any) -> Any:
    """The arguments of a call as JSON text."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _read_message(message: Any, number: int, where: str) -> Message:
    """A message that was checked; its parts have the type text."""
    place = f"Message {number} of {where}"
    if not isinstance(message, Mapping):
        raise ConversationError(f'{place} is no object: write {{"role": ..., "content": ...}}.')
    said = dict(message)
    if not isinstance(said.get("role"), str) or not said["role"]:
        raise ConversationError(f"{place} has no role: give system, user, assistant or tool.")
    content, calls = said.get("content"), said.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(x, Mapping) for x in calls)):
        raise ConversationError(f"{place}: tool_calls must be a list of objects.")
    if isinstance(content, list):
        said["content"] = [_read_part(x, place) for x in content]
    elif content is None:
        if not any(said.get(x) for x in ANSWERED_BY):
            raise ConversationError(f"{place} has no content: give its text.")
    elif not isinstance(content, str) and not (said["role"] == "tool" and isinstance(content, Mapping)):
        raise ConversationError(
            f"{place}: its content is {json.dumps(content, default=str)[:40]}; give a text, or a list of text parts."
        )
    return said


def _read_part(part: Any, place: str) -> dict[str, Any]:
    """A part of a content as text. Raises ConversationError for a picture, a sound or a file."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in TEXT_PARTS and isinstance(part.get("text"), str):
        return {**part, "type": "text"}
    if isinstance(kind, str) and kind not in TEXT_PARTS:
        raise ConversationError(
            f"{place} has a part of the type {kind[:40]!r}, and models are given text alone here: leave that part out."
        )
    raise ConversationError(f'{place} has a part that is not {{"type": "text", "text": "..."}}.')


def _objects(asked: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]] | None:
    value = asked.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(x, Mapping) for x in value):
        example = (
            '{"type": "function", "function": {...}}' if key == "tools" else '{"title": ..., "text": ...}'
        )
        raise ConversationError(f"The {key} of {where} must be a list of objects, such as {example}.")
    return [dict(x) for x in value]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
