"""Prompt reading: how the prompt of a run was put to the model."""

from __future__ import annotations

from typing import Literal

from decodescope.engine.core.conversation import ConversationError, parse_conversation

from ..records.events import Header, PromptKind

# raw: text or ids, without a chat template;  first: a user's first turn through the template;  later: a later turn of a
# conversation;  unknown: messages through the template that were not recorded
PromptReading = Literal["raw", "first", "later", "unknown"]
READINGS: dict[PromptReading, str] = {
    "raw": "raw text",
    "first": "a first turn through the chat template",
    "later": "a later turn of a conversation, through the chat template",
    "unknown": "messages through the chat template that were not recorded",
}


def prompt_reading(header: Header) -> PromptReading:
    """How the prompt of this run was put."""
    return classify_prompt(header.chat, header.prompt_kind, header.turn)


def classify_prompt(templated: bool, kind: PromptKind, turn: str) -> PromptReading:
    """The same of a prompt. templated: whether the chat template makes it;  turn: what the template is given

    kind: how the prompt was given; of "messages" the turn is JSON
    """
    if not templated:
        return "raw"
    if kind != "messages":
        return "first"
    if not turn:
        return "unknown"
    try:
        messages = parse_conversation(turn, "the prompt").messages
    except ConversationError:  # a record from elsewhere
        return "unknown"
    return "later" if sum(x["role"] == "user" for x in messages) > 1 else "first"
