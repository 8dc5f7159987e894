"""Prompts: the one place that reads a set of prompts, for the command line, the Report page and the Compare page.

It reads pasted text or a file (`parse_prompts`), LabBench (`labbench_prompts`), or a page's request (`requested_prompts`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from decodescope.app.basis.refusal import RequestRefusal

MOST = 10_000  # prompts of a set
LABBENCH = "labbench"
JSON_LINES = ".jsonl"  # file name ending for one object per line
OBJECT = '{"prompt": "..."} or {"turns": ["..."]}'
NAMED = 80  # characters of a name or a kind
BEGINS = 60  # characters of a prompt that identify it in lists


@dataclass(frozen=True)
class PromptEntry:
    """A prompt of a set.
    name: the question's number or name, else the line's number;  kind: of the question, "" if a line names none
    chat: whether it is a user's turn, for the chat template of a model that has one
    later: number of turns after the first, which are not asked"""

    name: str
    kind: str
    text: str
    chat: bool = False
    later: int = 0

    @property
    def beginning(self) -> str:
        """The beginning of the prompt in one line, which identifies it in lists."""
        return " ".join(self.text[: 4 * BEGINS].split())[:BEGINS].strip()


def parse_prompts(text: str, where: str, objects: bool | None = None) -> list[PromptEntry]:
    """Parse prompts: one per line without empty lines, or one JSON object per line.
    An object is {"prompt"} or Spec-Bench's {"turns"}, and only the first turn counts. It may have "category" and "question_id".

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
    return isinstance(said, dict) and ("prompt" in said or "turns" in said)


def _parse_object(line: str, number: int, where: str) -> PromptEntry:
    """The prompt of a line of JSON."""
    place = f"Line {number} of {where}"
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestRefusal(f"{place} is no JSON ({str(error)[:80]}).") from None
    turns = said.get("turns") if isinstance(said, dict) else None
    text = said.get("prompt") if isinstance(said, dict) else None
    later = 0
    if text is None and isinstance(turns, list) and turns:
        text, later = turns[0], len(turns) - 1
    if not isinstance(text, str) or not text.strip():
        raise RequestRefusal(f"{place} has no prompt: write {OBJECT}.")
    kind, name = said.get("category", ""), said.get("question_id", number)
    if re.search("[\ud800-\udfff]", f"{text}{kind}{name}"):
        raise RequestRefusal(f"{place} holds half of a surrogate pair, which is no text: mend the line.")
    return PromptEntry(str(name)[:NAMED], kind[:NAMED] if isinstance(kind, str) else "", text, later=later)
