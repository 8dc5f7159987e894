"""Notes on a prompt: what a user may not expect of its special tokens and of the chat template."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .folder import escape_unprintable
from .tokenizer import Tokenizer

SHOWN = 3  # special tokens or templates that are named
MARK = "MARK"


@dataclass(frozen=True)
class PromptAdvice:
    """How a user follows a note. chat: puts the prompt into the chat template;  stop: ends a text at MARK"""

    chat: str
    stop: str


COMMAND = PromptAdvice("--chat lets the chat template write them", f"--stop {MARK} ends it there")
PYTHON = PromptAdvice("chat=True lets the chat template write them", f"stop={MARK} ends it there")
PAGE = PromptAdvice("the switch Chat template writes them", f"decodescope run --stop {MARK} ends it there")


def prompt_notes(
    tokenizer: Any,
    prompts: Iterable[tuple[str, bool]],
    stops: Collection[int] | None,
    texts: Sequence[str] = (),
    ways: PromptAdvice = COMMAND,
) -> list[str]:
    """Notes on these prompts, (text, whether it is a turn of a chat). A stand-in for a tokenizer gets none.

    stops, texts: the ids and the texts at which a run ends; None: it is to go on after its end tokens
    """
    if not isinstance(tokenizer, Tokenizer):
        return []
    asked = [*prompts]
    plain, turns = ("\0".join(text for text, chat in asked if chat is wanted) for wanted in (False, True))
    notes = [_typed_marks_note(tokenizer, plain, ways)] if plain else []
    if any(chat for _, chat in asked):
        notes += [
            _typed_marks_note(tokenizer, turns, None),
            _endless_note(tokenizer, stops, texts, ways),
            _unused_templates_note(tokenizer),
        ]
    return [x for x in notes if x]


def _typed_marks_note(tokenizer: Tokenizer, text: str, ways: PromptAdvice | None) -> str:
    """That special tokens in a prompt are text."""
    marks = tokenizer.typed_marks(text, chat=ways is None)
    if not marks:
        return ""
    shown = ", ".join(map(repr, marks[:SHOWN])) + (
        f" and {len(marks) - SHOWN} more" if len(marks) > SHOWN else ""
    )
    what = f"the prompt holds the text of special tokens ({shown}), which is read as plain text"
    return f"{what}: {ways.chat}." if ways is not None and ways.chat and tokenizer.has_chat else f"{what}."


def _endless_note(
    tokenizer: Tokenizer, stops: Collection[int] | None, texts: Sequence[str], ways: PromptAdvice
) -> str:
    """That the token by which the template ends an answer does not end the run."""
    ends = tokenizer.turn_ends
    names = [str(tokenizer.piece(x)) for x in ends]
    if (
        stops is None
        or not {*stops}.isdisjoint(ends)
        or any(text in name for text in texts for name in names)
    ):
        return ""
    if ends:
        what = f"the chat template ends an answer with {names[0]!r}, which is no stop token of this model"
        return f"{what}, so a text goes on behind it: {ways.stop.replace(MARK, shlex.quote(escape_unprintable(names[0])))}."
    if stops or texts:
        return ""
    return "this model has no stop token, so a chat goes on up to its limit of new tokens: give a text to stop at, or a limit."


def _unused_templates_note(tokenizer: Tokenizer) -> str:
    """That the folder has chat templates that are not used."""
    others = tokenizer.templates.others
    if not others:
        return ""
    shown = escape_unprintable(", ".join(others[:SHOWN]))
    return f"this model has more chat templates ({shown}), for tools or documents: they are not used."
