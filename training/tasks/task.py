"""What a task is, how its content is given to a split, and the small tools that all kinds share."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from ..stories import Story, tell

SPLITS = ("train", "valid", "held_out")
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """One conversation: user turns, a right answer to each, the scorer's name, and the content that fixes its split.

    `references` are the texts that the scorer compares an answer with, if they are not the answer itself.
    """

    kind: str
    turns: tuple[str, ...]
    answers: tuple[str, ...]
    scorer: str
    tags: dict[str, int | str]
    key: str  # split_of(key) is the task's split
    references: tuple[str, ...] = ()


def split_of(key: str) -> str:
    """The split of a piece of content, the same on every machine: 90 % train, 2 % valid, 8 % held_out."""
    place = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") % 100
    if place < 90:
        return "train"
    if place < 92:
        return "valid"
    return "held_out"


def pick(split: str, draw: Callable[[], T]) -> T:
    """The first thing drawn whose `repr` belongs to `split`."""
    if split not in SPLITS:
        raise ValueError(f"There is no split {split!r}; choose one of {', '.join(SPLITS)}.")
    while split_of(repr(thing := draw())) != split:
        pass
    return thing


def story(r: Random, split: str) -> tuple[Story, str]:
    """A story whose seed belongs to `split`, and its key."""
    seed = pick(split, lambda: r.getrandbits(48))
    return tell(Random(seed)), repr(seed)


def ask(r: Random, instruction: str, text: str, gap: str = "\n") -> str:
    """The instruction before the text or, as often, after it."""
    return instruction + gap + text if r.random() < 0.5 else text + gap + instruction


def nonsense_word(r: Random, low: int = 2, high: int = 3) -> str:
    """A word of `low` to `high` syllables that means nothing."""
    return "".join(r.choices(SYLLABLES, k=r.randint(low, high)))


def split_sentences(text: str) -> list[str]:
    """The sentences of a story, in order."""
    return [s for s in re.split(r"(?<=[.!?]) |(?<=[.!?][\"']) |\n+", text) if s]


def render(task: Task) -> str:
    """The conversation in the chat format of the tokenizer, every turn closed by <|end|>."""
    return "".join(
        f"<|user|>\n{turn}<|end|>\n<|assistant|>\n{answer}<|end|>\n"
        for turn, answer in zip(task.turns, task.answers, strict=True)
    )
