"""Texts: files of text that the command line is given."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from decodescope.engine.core.paths import PathRefusal, expand_path, shorten_path
from decodescope.engine.core.refusal import Refusal

from .output import format_bytes

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model

LARGEST = 16 << 20  # bytes of a file


def read_text(name: str, what: str = "prompt file") -> str:
    """The text of a file; `-` is standard input. what: the name of the file in messages"""
    called = f"The {what} {shorten_path(name)}"
    try:
        data = sys.stdin.buffer.read(LARGEST + 1) if name == "-" else _read_head(name)
    except PathRefusal as error:
        raise Refusal(f"{called} cannot be read: {error.why}.") from None
    except (OSError, ValueError) as error:
        raise Refusal(f"{called} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if len(data) > LARGEST:
        raise Refusal(f"{called} is larger than {format_bytes(LARGEST)}, the limit: give a shorter one.")
    try:
        # some editors begin a file with a byte-order mark, which is not text
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Refusal(f"{called} is not UTF-8 text (byte {error.start}): save it as UTF-8.") from None


def _read_head(name: str) -> bytes:
    with expand_path(name).open("rb") as file:
        return file.read(LARGEST + 1)


def unused_template_note(model: Model, templated: Iterable[bool]) -> list[str]:
    """A sentence on the chat template of `model`, alone in a list, if some prompts did not go through it; else nothing."""
    if model.tokenizer is None or not model.tokenizer.has_chat or all(templated):
        return []
    return [f"{model.name} has a chat template: --chat puts every prompt through it."]
