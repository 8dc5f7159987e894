"""Given: what the target reads of a prompt, before a run: the prompt's own tokens, or those of a user's turn in its chat
template."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from decodescope.app.basis.refusal import sentence

from .composition import RunChoice

if TYPE_CHECKING:
    from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
    from decodescope.engine.session.load import Model

    from .model_pool import Offer

KEPT = 16  # turns that a template was run for


@dataclass(frozen=True)
class EncodedPrompt:
    """ids: the tokens;  text: them as text, marks of the template included;  why: why a template cannot make them, as a
    sentence; empty if it can"""

    ids: tuple[int, ...] = ()
    text: str = ""
    why: str = ""


def encode_prompt(reader: Model | Offer, choice: RunChoice) -> EncodedPrompt:
    """What the target, which has a tokenizer, is given of the prompt of a choice."""
    tokenizer = reader.tokenizer
    assert tokenizer is not None
    if choice.chat and not tokenizer.has_chat:
        return EncodedPrompt(why=f"{no_template(reader)}: leave it out, or choose a model that has one.")
    return (
        _encode_turn(tokenizer, choice.prompt)
        if choice.chat
        else _decode_ids(tokenizer, tokenizer.encode(choice.prompt))
    )


def notes_on(reader: Model | Offer, choice: RunChoice) -> list[str]:
    """Notes on special tokens in the prompt of a choice, on the end of its answer, and on settings of the tokenizer that are
    not followed."""
    from decodescope.engine.model.checkpoint.prompt_notes import PAGE, prompt_notes

    ends = None if choice.ignore_eos else reader.stop_tokens
    remarks = [f"{reader.name}: {x}" for x in getattr(reader.tokenizer, "remarks", ())]
    return remarks + prompt_notes(reader.tokenizer, [(choice.prompt, choice.chat)], ends, ways=PAGE)


def no_template(reader: Model | Offer) -> str:
    """What is said of a model without a chat template."""
    templates = getattr(reader.tokenizer, "templates", None)  # a stand-in for a tokenizer may have none
    return f"{reader.name} {'has no chat template' if templates is None else templates.lacking}"


@lru_cache(maxsize=KEPT)
def _encode_turn(tokenizer: Tokenizer, prompt: str) -> EncodedPrompt:
    from decodescope.engine.model.checkpoint.chat_template import TemplateError

    try:
        return _decode_ids(tokenizer, tokenizer.chat([{"role": "user", "content": prompt}]))
    except TemplateError as error:
        return EncodedPrompt(why=sentence(error))


def _decode_ids(tokenizer: Tokenizer, ids: list[int]) -> EncodedPrompt:
    return EncodedPrompt(tuple(ids), b"".join(map(tokenizer.bytes_of, ids)).decode("utf-8", "replace"))
