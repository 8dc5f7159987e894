"""Texts: files of text that the command line is given."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from decodescope.engine.core.conversation import parse_conversation
from decodescope.engine.core.paths import PathRefusal, expand_path, shorten_path
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.model.checkpoint.prompt_source import PromptSource, parse_ids

from .output import format_bytes

if TYPE_CHECKING:
    from decodescope.app.runs.prompts import PromptEntry
    from decodescope.engine.session.load import Model

LARGEST = 16 << 20  # bytes of a file


def read_prompt_entries(name: str) -> list[PromptEntry]:
    """The prompts of a file, one a line or, in .jsonl, one object a line; `labbench`: LabBench's questions."""
    from decodescope.app.runs.prompts import JSON_LINES, LABBENCH, labbench_prompts, parse_prompts

    if name == LABBENCH:
        return labbench_prompts()
    return parse_prompts(read_text(name), name, name.endswith(JSON_LINES))


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


def read_source(args: argparse.Namespace) -> PromptSource:
    """The prompt of a command line: --prompt or --prompt-file, --messages or --ids. Raises Refusal."""
    given = next((x for x in ("messages", "ids") if getattr(args, x) is not None), "")
    switch = next((x for x in ("chat", "marks") if getattr(args, x)), "")
    if given and switch:
        raise Refusal(f"--{switch} is about a prompt that is plain text: leave it out with --{given}.")
    if args.chat and args.marks:
        raise Refusal(
            "--chat puts the prompt through the template, and --marks reads a text that went through it: leave one out."
        )
    if args.messages is not None:
        where = f"the messages file {shorten_path(args.messages)}"
        text = read_text(args.messages, "messages file")
        return replace(PromptSource.of(parse_conversation(text, where)), where=where)
    if args.ids is not None:
        listed = args.ids.startswith("@")
        text = read_text(args.ids[1:], "file of token ids") if listed else args.ids
        return PromptSource(" ".join(map(str, parse_ids(text, "--ids"))), "ids")
    text = args.prompt if args.prompt is not None else read_text(args.prompt_file)
    return PromptSource(text, "marks" if args.marks else "text", args.chat)


def _read_head(name: str) -> bytes:
    with expand_path(name).open("rb") as file:
        return file.read(LARGEST + 1)


def unused_template_note(model: Model, prompts: Iterable[PromptSource]) -> list[str]:
    """A sentence on the chat template of `model`, alone in a list, if some plain texts did not go through it; else nothing."""
    if (
        model.tokenizer is None
        or not model.tokenizer.has_chat
        or all(x.is_templated or x.kind != "text" for x in prompts)
    ):
        return []
    return [f"{model.name} has a chat template: --chat puts every prompt through it."]
