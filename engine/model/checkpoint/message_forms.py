"""Message forms: content as parts or as text, arguments of tool calls as objects or as text, as a chat template reads them.

The OpenAI API allows both. Templates are written for one of them, and do not say for which one, so a template is tried.
"""

from __future__ import annotations

import json
from typing import Any

from decodescope.engine.core.conversation import (
    Message,
    arguments_object,
    arguments_text,
    call_arguments,
    join_parts,
    map_arguments,
    map_content,
)

from .chat_template import render_each


def fit_messages(source: str, words: dict[str, Any]) -> list[Message]:
    """The messages of `words` in the forms that the template `source` reads. Raises TemplateError if that cannot run."""
    messages: list[Message] = words["messages"]
    if any(x.get("tool_calls") for x in messages):
        messages = _fit_arguments(source, words, messages)
    if any(isinstance(x.get("content"), list) for x in messages):
        messages = _fit_parts(source, words, messages)
    return messages


def _fit_arguments(source: str, words: dict[str, Any], messages: list[Message]) -> list[Message]:
    """Arguments as objects, as most templates expect them; as JSON text for one that fails on objects, or writes them as Python
    does."""
    objects = map_arguments(messages, arguments_object)
    texts = map_arguments(messages, arguments_text)
    seen = [
        x for message in objects for call in message.get("tool_calls") or () for x in call_arguments(call)
    ]
    tried, other = render_each(
        source, [{**words, "messages": map_content(x, join_parts)} for x in (objects, texts)]
    )
    if not isinstance(other, str):
        return objects
    return texts if not isinstance(tried, str) or any(repr(x) in tried for x in seen if x) else objects


def _fit_parts(source: str, words: dict[str, Any], messages: list[Message]) -> list[Message]:
    """Content as parts for a template that writes the texts of parts, else as one text."""
    joined = map_content(messages, join_parts)
    single = map_content(messages, lambda parts: [{"type": "text", "text": join_parts(parts)}])
    tried, other = render_each(source, [{**words, "messages": x} for x in (single, joined)])
    if not isinstance(tried, str):
        return joined
    parts = [x["content"][0] for x in single if isinstance(x.get("content"), list)]
    return messages if tried == other or all(_writes_text(tried, x) for x in parts) else joined


def _writes_text(written: str, part: dict[str, str]) -> bool:
    """Whether a template wrote the text of a part, and not the part as Python or JSON has it."""
    printed = (repr(part), json.dumps(part, ensure_ascii=False), json.dumps(part))
    return part["text"].strip() in written and not any(x in written for x in printed)
