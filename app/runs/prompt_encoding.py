"""Prompt encoding: the target's input for a prompt, before a run.

It is the prompt's own tokens, or those of a user's turn in the target's chat template."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from decodescope.app.basis.refusal import sentence
from decodescope.engine.core.conversation import ConversationError

from .composition import RunChoice

if TYPE_CHECKING:
    from decodescope.engine.model.checkpoint.prompt_source import PromptSource
    from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
    from decodescope.engine.session.load import Model

    from .model_pool import Offer

KEPT = 16  # turns with a cached template result


@dataclass(frozen=True)
class EncodedPrompt:
    """The tokens that a target reads.
    ids: the tokens;  text: them as text, marks of the template included;  why: why a template cannot make them, as a
    sentence; empty if it can"""

    ids: tuple[int, ...] = ()
    text: str = ""
    why: str = ""


def encode_prompt(reader: Model | Offer, choice: RunChoice) -> EncodedPrompt:
    """The input of the target, which has a tokenizer, for the prompt of a choice."""
    tokenizer = reader.tokenizer
    assert tokenizer is not None
    source = choice.source
    if source.is_templated and not tokenizer.has_chat:
        way = "leave it out" if choice.chat else "give plain text"
        return EncodedPrompt(why=f"{no_template(reader)}: {way}, or choose a model that has one.")
    return _encode_source(tokenizer, source)


def notes_on(reader: Model | Offer, choice: RunChoice) -> list[str]:
    """Notes on special tokens in the prompt of a choice, on the end of its answer, and on ignored tokenizer settings."""
    from decodescope.engine.model.checkpoint.prompt_notes import PAGE, prompt_notes

    ends = None if choice.ignore_eos else reader.stop_tokens
    remarks = [f"{reader.name}: {x}" for x in getattr(reader.tokenizer, "remarks", ())]
    return remarks + prompt_notes(reader.tokenizer, [choice.source], ends, ways=PAGE)


def no_template(reader: Model | Offer) -> str:
    """The sentence for a model without a chat template."""
    templates = getattr(reader.tokenizer, "templates", None)  # a fake tokenizer may have none
    return f"{reader.name} {'has no chat template' if templates is None else templates.lacking}"


@lru_cache(maxsize=KEPT)
def _encode_source(tokenizer: Tokenizer, source: PromptSource) -> EncodedPrompt:
    from decodescope.engine.model.checkpoint.chat_template import TemplateError

    try:
        ids = source.encode(tokenizer)
    except (TemplateError, ConversationError) as error:
        return EncodedPrompt(why=sentence(error))
    return _decode_ids(tokenizer, ids)


def _decode_ids(tokenizer: Tokenizer, ids: list[int]) -> EncodedPrompt:
    return EncodedPrompt(tuple(ids), b"".join(map(tokenizer.bytes_of, ids)).decode("utf-8", "replace"))
