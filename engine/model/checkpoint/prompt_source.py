"""Prompt source: a prompt as a user gave it, and the ids that a tokenizer makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from decodescope.engine.core.arguments import check_ids
from decodescope.engine.core.conversation import Conversation, parse_conversation
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.trace.records.events import PromptKind

if TYPE_CHECKING:
    from .tokenizer import Tokenizer


@dataclass(frozen=True)
class PromptSource:
    """A prompt as text of one of the kinds, so that it can be recorded, shown and edited.

    text: the prompt; JSON for "messages", whole numbers for "ids";  chat: whether plain text is put as a user's turn
    where: its name in refusals;  talk: the messages, if they were read already
    """

    text: str
    kind: PromptKind = "text"
    chat: bool = False
    where: str = "the prompt"
    talk: Conversation | None = field(default=None, compare=False)

    @classmethod
    def of(cls, value: PromptValue, chat: bool = False, marks: bool = False) -> PromptSource:
        """The source of what a run was given. Raises ParamError, ConversationError."""
        if isinstance(value, cls):
            return value
        if marks and (chat or not isinstance(value, str)):
            raise ParamError(
                "marks reads the special tokens of a text that a template has made: give such a text, without chat."
            )
        if isinstance(value, str):
            return cls(value, "marks" if marks else "text", chat)
        listed = isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Mapping)
        if listed or isinstance(value, Mapping | Conversation):
            talk = Conversation.of(list(value) if isinstance(value, tuple) else value)
            return cls(talk.text, "messages", talk=talk)
        return cls(" ".join(map(str, check_ids(value, "the prompt"))), "ids")

    @property
    def is_templated(self) -> bool:
        """Whether the model's chat template makes the prompt."""
        return self.chat_turn or self.kind == "messages"

    @property
    def chat_turn(self) -> bool:
        """Whether it is a user's turn."""
        return self.chat and self.kind == "text"

    @property
    def turn(self) -> str:
        """What the template is given, for the record; empty if there is no template."""
        return self.text if self.is_templated else ""

    @cached_property
    def conversation(self) -> Conversation:
        """The messages. Raises ConversationError."""
        if self.talk is not None:
            return self.talk
        if self.kind == "messages":
            return parse_conversation(self.text, self.where)
        return Conversation.of_turn(self.text)

    def encode(self, tokenizer: Tokenizer) -> list[int]:
        """The ids that the model reads. Raises ConversationError, TemplateError, ValueError or Refusal."""
        if self.kind == "ids":
            return parse_ids(self.text, self.where)
        if self.is_templated:
            return tokenizer.chat(self.conversation)
        return tokenizer.encode_marks(self.text) if self.kind == "marks" else tokenizer.encode(self.text)


# what a run takes as its prompt: text, token ids, messages, a request with messages, or what was made of one of them
PromptValue = (
    str | Sequence[int] | Sequence[Mapping[str, Any]] | Mapping[str, Any] | Conversation | PromptSource
)


def parse_ids(text: str, where: str = "the prompt") -> list[int]:
    """Token ids in a text: whole numbers with commas or spaces between them, or a JSON list. Raises Refusal."""
    words = re.split(r"[\s,]+", text.strip().removeprefix("[").removesuffix("]").strip())
    odd = next((x for x in words if not re.fullmatch(r"\d{1,9}", x)), None)
    if odd is not None:
        what = f"holds {json.dumps(odd[:40])}" if odd else "is empty"
        raise Refusal(
            f"{where[:1].upper()}{where[1:]} {what}, and token ids are whole numbers with commas or spaces between them."
        )
    return [int(x) for x in words]
