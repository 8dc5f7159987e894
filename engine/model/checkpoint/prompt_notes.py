"""Notes on a prompt: what a user may not expect of its special tokens and of the chat template."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from decodescope.engine.core.conversation import Conversation

from .chat_template import FOR_TOOLS
from .folder import escape_unprintable
from .prompt_source import PromptSource
from .tokenizer import Tokenizer
from .typed_marks import strings

SHOWN = 3  # special tokens or templates that are named
MARK = "MARK"


@dataclass(frozen=True)
class PromptAdvice:
    """How a user follows a note.

    chat: puts the prompt into the chat template;  stop: ends a text at MARK;  marks: reads special tokens in it
    """

    chat: str
    stop: str
    marks: str = ""


COMMAND = PromptAdvice(
    "--chat lets the chat template write them",
    f"--stop {MARK} ends it there",
    "--marks reads them as special tokens",
)
PYTHON = PromptAdvice(
    "chat=True lets the chat template write them",
    f"stop={MARK} ends it there",
    "marks=True reads them as special tokens",
)
PAGE = PromptAdvice(
    "the switch Chat template writes them",
    f"decodescope run --stop {MARK} ends it there",
    "the choice text with special tokens reads them as such",
)


def prompt_notes(
    tokenizer: Any,
    prompts: Iterable[PromptSource],
    stops: Collection[int] | None,
    texts: Sequence[str] = (),
    ways: PromptAdvice = COMMAND,
) -> list[str]:
    """Notes on these prompts. A stand-in for a tokenizer gets none.

    stops, texts: the ids and the texts at which a run ends; None: it is to go on after its end tokens
    """
    if not isinstance(tokenizer, Tokenizer):
        return []
    asked = [*prompts]
    plain = "\0".join(x.text for x in asked if x.kind == "text" and not x.chat)
    notes = [_typed_marks_note(tokenizer, plain, ways)] if plain else []
    talks = [x.conversation for x in asked if x.is_templated]
    if talks:
        turns = "\0".join(text for x in talks for text in strings(x.record()))
        notes += [
            _typed_marks_note(tokenizer, turns, None),
            _endless_note(tokenizer, stops, texts, ways),
            _unused_templates_note(tokenizer) if any(_takes_default(tokenizer, x) for x in talks) else "",
            _unread_keys_note(talks),
        ]
    notes += [_bare_text_note(tokenizer, [x.text for x in asked if x.kind == "marks"])]
    return [x for x in notes if x]


def _takes_default(tokenizer: Tokenizer, talk: Conversation) -> bool:
    """Whether the default one of several templates makes the prompt."""
    named = tokenizer.templates.named
    return not talk.template and not (talk.tools is not None and FOR_TOOLS in named)


def _unread_keys_note(talks: Sequence[Conversation]) -> str:
    """That keys of a request were not read."""
    keys = list(dict.fromkeys(key for x in talks for key in x.unread))
    if not keys:
        return ""
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    shown = escape_unprintable(", ".join(keys[:SHOWN]))
    return f"these keys of the request are not read: {shown}{more}; the run's own settings count."


def _bare_text_note(tokenizer: Tokenizer, texts: Sequence[str]) -> str:
    """That a text with special tokens lacks the beginning that the model usually gets."""
    front = tokenizer.front
    if not front or all(tokenizer.encode_marks(x)[: len(front)] == front for x in texts):
        return ""
    return (
        f"a text that is read with its special tokens gets nothing before it, and this model usually gets "
        f"{tokenizer.decode(front)!r}: write that where it is wanted."
    )


def _typed_marks_note(tokenizer: Tokenizer, text: str, ways: PromptAdvice | None) -> str:
    """That special tokens in a prompt are text."""
    marks = tokenizer.typed_marks(text, chat=ways is None)
    if not marks:
        return ""
    shown = ", ".join(map(repr, marks[:SHOWN])) + (
        f" and {len(marks) - SHOWN} more" if len(marks) > SHOWN else ""
    )
    what = f"the prompt holds the text of special tokens ({shown}), which is read as plain text"
    if ways is None:
        return f"{what}."
    advice = [x for x in (ways.marks, ways.chat if tokenizer.has_chat else "") if x]
    return f"{what}: {', or '.join(advice)}." if advice else f"{what}."


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
    """That the folder has other chat templates than the default one."""
    others = tokenizer.templates.others
    if not others:
        return ""
    shown = escape_unprintable(", ".join(others[:SHOWN]))
    return f"this model has more chat templates ({shown}), for tools or documents: chat_template in the messages names one."
