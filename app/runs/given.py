"""Given: what the target reads of a prompt, before a run: the prompt's own tokens, or those of a user's turn in its chat
template."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from decodescope.app.refusal import sentence

from .composed import Choice

if TYPE_CHECKING:
    from decodescope.engine.checkpoint.tokenizer import Tokenizer

KEPT = 16  # turns that a template was run for


@dataclass(frozen=True)
class Given:
    """ids: the tokens;  text: them as text, marks of the template included;  why: why a template cannot make them, as a
    sentence; empty if it can"""

    ids: tuple[int, ...] = ()
    text: str = ""
    why: str = ""


def given(tokenizer: Tokenizer, name: str, choice: Choice) -> Given:
    """What the target called `name` is given of the prompt of a choice."""
    if choice.chat and not tokenizer.has_chat:
        return Given(why=f"{no_template(name)}: leave it out, or choose a model that has one.")
    return _turn(tokenizer, choice.prompt) if choice.chat else _read(tokenizer, tokenizer.encode(choice.prompt))


def no_template(name: str) -> str:
    """What is said of a model without a chat template."""
    return f"{name} has no chat template"


@lru_cache(maxsize=KEPT)
def _turn(tokenizer: Tokenizer, prompt: str) -> Given:
    from decodescope.engine.checkpoint.chat_template import TemplateError

    try:
        return _read(tokenizer, tokenizer.chat([{"role": "user", "content": prompt}]))
    except TemplateError as error:
        return Given(why=sentence(error))


def _read(tokenizer: Tokenizer, ids: list[int]) -> Given:
    return Given(tuple(ids), b"".join(map(tokenizer.bytes_of, ids)).decode("utf-8", "replace"))
