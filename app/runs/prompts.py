"""Prompts: the one place that reads a set of prompts, for the command line, the Report page and the Compare page.

It reads pasted text or a file (`parse_prompts`), LabBench (`labbench_prompts`), or a page's request (`requested_prompts`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.engine.core.conversation import (
    Conversation,
    ConversationError,
    find_conversation,
    sharegpt_conversation,
)
from decodescope.engine.model.checkpoint.prompt_source import PromptSource
from decodescope.engine.trace.records.events import PromptKind

MOST = 10_000  # prompts of a set
LABBENCH = "labbench"
JSON_LINES = ".jsonl"  # file name ending for one object per line
OBJECT = '{"prompt": "..."}, {"messages": [...]}, {"prompt_token_ids": [...]} or {"turns": ["..."]}'
KEYS = (
    "prompt",
    "turns",
    "messages",
    "conversations",
    "prompt_token_ids",
    "body",
)  # an object with one names a prompt
NAMED = 80  # characters of a name or a kind
BEGINS = 60  # characters of a prompt that identify it in lists


@dataclass(frozen=True)
class PromptEntry:
    """A prompt of a set.
    name: the question's number or name, else the line's number;  kind: of the question, "" if a line names none
    chat: whether it is a user's turn, for the chat template of a model that has one
    later: number of turns after the first, which are not asked
    prompt_kind: how the text gives the prompt, as a header has it"""

    name: str
    kind: str
    text: str
    chat: bool = False
    later: int = 0
    prompt_kind: PromptKind = "text"

    @property
    def beginning(self) -> str:
        """The beginning of the prompt in one line, which identifies it in lists; of messages that of the last question."""
        talk = find_conversation(self.text) if self.prompt_kind == "messages" else None
        text = self.text if talk is None else talk.last_question
        return " ".join(text[: 4 * BEGINS].split())[:BEGINS].strip()

    def source(self, chat: bool = False, marks: bool = False) -> PromptSource:
        """The prompt for a model. chat: put plain text as a user's turn;  marks: read special tokens in it"""
        kind: PromptKind = "marks" if marks and self.prompt_kind == "text" else self.prompt_kind
        return PromptSource(self.text, kind, chat, f"prompt {self.name}")


def parse_prompts(text: str, where: str, objects: bool | None = None) -> list[PromptEntry]:
    """Parse prompts: one per line without empty lines, or one JSON object per line.
    An object is {"prompt"}, {"prompt_token_ids"}, a request with {"messages"} (or one in {"body"}, as in OpenAI's batch files),
    ShareGPT's {"conversations"}, or Spec-Bench's {"turns"}, of which only the first turn counts. It may have "category" and
    "question_id".

    where: name of the text in messages;  objects: whether its lines are objects; None: if the first one is an object.
    Raises RequestRefusal, with the number of the line.
    """
    lines = [
        (i, x.rstrip("\r")) for i, x in enumerate(text.removeprefix("\ufeff").split("\n"), 1) if x.strip()
    ]
    if not lines:
        raise RequestRefusal(
            f"There is no prompt in {where}: give one a line, or one JSON object a line in a {JSON_LINES} file."
        )
    if len(lines) > MOST:
        raise RequestRefusal(f"{len(lines)} prompts are in {where}, more than {MOST}, the limit: give fewer.")
    if objects is None:
        objects = _is_object(lines[0][1])
    return [_parse_object(line, i, where) if objects else PromptEntry(str(i), "", line) for i, line in lines]


def labbench_prompts() -> list[PromptEntry]:
    """LabBench's questions; only their first turns are asked."""
    from decodescope.engine.bench.labbench import QUESTIONS
    from decodescope.engine.bench.questions.questions import read_questions

    questions, _ = read_questions(QUESTIONS)
    return [PromptEntry(str(x.id), x.kind, x.turns[0], chat=True, later=len(x.turns) - 1) for x in questions]


def select_kinds(
    prompts: Iterable[PromptEntry], kinds: Sequence[str] = (), each: int = 0
) -> list[PromptEntry]:
    """The first `each` (0: all) prompts of every kind in `kinds` (none: all kinds).
    Raises RequestRefusal for a kind without prompts."""
    from decodescope.engine.bench.questions.questions import count_kinds as counted
    from decodescope.engine.bench.questions.questions import first_of_each_kind

    known = [*prompts]
    there = counted(known)
    lacking = next((x for x in kinds if x not in there), None)
    if lacking is not None:
        raise RequestRefusal(
            f"There is no prompt of the kind {lacking[:40]!r}: choose among {', '.join(x or 'none' for x in there)}."
        )
    chosen = [x for x in known if not kinds or x.kind in kinds]
    return first_of_each_kind(chosen, each) if each else chosen


def requested_prompts(said: dict[str, Any], most: int) -> list[PromptEntry]:
    """The prompts of a page's question. Raises RequestRefusal, also for more than `most`.
    It is {"text"}, with "file", the name of its file if it comes from one, or {"bench": "labbench"}; and "kinds", "each" as
    in `select_kinds`."""
    whole = available_prompts(said)
    kinds, each = said.get("kinds") or [], said.get("each") or 0
    if not isinstance(kinds, list) or not all(isinstance(x, str) for x in kinds):
        raise RequestRefusal('"kinds" is a list of names.')
    if not isinstance(each, int) or isinstance(each, bool) or not 0 <= each <= MOST:
        raise RequestRefusal(
            f"Of each kind = {str(each)[:20]}: must be a whole number in [0, {MOST}]; 0 takes all."
        )
    chosen = select_kinds(whole, kinds, each)
    if len(chosen) > most:
        raise RequestRefusal(
            f"{len(chosen)} prompts were chosen, more than {most}, the limit: choose fewer kinds, or fewer of each."
        )
    return chosen


def available_prompts(said: dict[str, Any]) -> list[PromptEntry]:
    """All prompts of the text, file or bench of such a question, before kinds are chosen. Raises RequestRefusal."""
    bench = said.get("bench") or ""
    text = said.get("text") or ""
    file = said.get("file") or ""
    if not all(isinstance(x, str) for x in (bench, text, file)):
        raise RequestRefusal(
            'Send {"text": "..."}, {"text": "...", "file": "NAME"} or {"bench": "labbench"}.'
        )
    if bench and bench != LABBENCH:
        raise RequestRefusal(
            f"There is no bench {bench[:40]!r} here: choose {LABBENCH}, or a file of prompts."
        )
    if bench:
        return labbench_prompts()
    return (
        parse_prompts(text, file[:NAMED], file.endswith(JSON_LINES))
        if file
        else parse_prompts(text, "the text")
    )


def _is_object(line: str) -> bool:
    """Whether a line is an object that names a prompt."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and any(x in said for x in KEYS)


def _parse_object(line: str, number: int, where: str) -> PromptEntry:
    """The prompt of a line of JSON."""
    place = f"Line {number} of {where}"
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestRefusal(f"{place} is no JSON ({str(error)[:80]}).") from None
    if not isinstance(said, dict):
        raise RequestRefusal(f"{place} has no prompt: write {OBJECT}.")
    kind = said.get("category", "")
    name = said.get("question_id", said.get("custom_id", number))
    text, prompt_kind, later = _prompt_of(said, place)
    if re.search("[\ud800-\udfff]", f"{text}{kind}{name}"):
        raise RequestRefusal(f"{place} holds half of a surrogate pair, which is no text: mend the line.")
    kind = kind[:NAMED] if isinstance(kind, str) else ""
    return PromptEntry(str(name)[:NAMED], kind, text, later=later, prompt_kind=prompt_kind)


def _prompt_of(said: dict[str, Any], place: str) -> tuple[str, PromptKind, int]:
    """The text of an object's prompt, its kind, and how many of its turns are not asked. Raises RequestRefusal."""
    asked = said["body"] if isinstance(said.get("body"), dict) else said
    text, ids, turns = (asked.get(x) for x in ("prompt", "prompt_token_ids", "turns"))
    if ids is None and isinstance(text, list) and text and isinstance(text[0], int):
        ids = text
    if ids is not None:
        if not isinstance(ids, list) or not all(type(x) is int and x >= 0 for x in ids):
            raise RequestRefusal(f"{place}: prompt_token_ids must be a list of whole numbers from 0.")
        return " ".join(map(str, ids)), "ids", 0
    try:
        if "messages" in asked:
            return Conversation.of(asked, place).text, "messages", 0
        if "conversations" in asked:
            return sharegpt_conversation(asked["conversations"], place).text, "messages", 0
    except ConversationError as error:
        raise RequestRefusal(str(error)) from None
    later = 0
    if text is None and isinstance(turns, list) and turns:
        text, later = turns[0], len(turns) - 1
    if not isinstance(text, str) or not text.strip():
        raise RequestRefusal(f"{place} has no prompt: write {OBJECT}.")
    return text, "text", later
