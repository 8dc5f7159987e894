"""Titles: the names of runs wherever several are shown: method, and the beginning of the prompt."""

from __future__ import annotations

from decodescope.engine.core.conversation import find_conversation

from ..records.events import Header
from ..records.parts import method_label
from ..records.pieces import join

TOKENS = 48  # of a prompt that are looked at
LETTERS = 40  # of a prompt that are shown


def title(header: Header) -> str:
    """The title of a run; a fork with a name has that instead of its method."""
    name = header.fork.get("name") if header.fork is not None else None
    return compose_title(str(name) if name else method_label(header), prompt_line(header))


def prompt_line(header: Header) -> str:
    """The text that names a run's prompt: of messages the last question."""
    if header.turn:
        talk = find_conversation(header.turn) if header.prompt_kind == "messages" else None
        return header.turn if talk is None else talk.last_question
    return _prompt_text(header)


def compose_title(method: str, prompt: str) -> str:
    """A title of a method and a prompt: the prompt's first whole words, without what a chat template added."""
    words = [x for x in prompt[: 8 * LETTERS].split() if not (x.startswith("<|") and x.endswith("|>"))]
    text = " ".join(words)
    if len(text) > LETTERS:
        text = (text[:LETTERS].rpartition(" ")[0] or text[:LETTERS]) + "…"
    return f"{method}: {text}" if text else method


def _prompt_text(header: Header) -> str:
    begins = header.prompt[:TOKENS].tolist()
    return join(begins, {token: header.pieces.get(str(token), "") for token in begins})
