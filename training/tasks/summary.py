"""A story, and the one sentence of it that says what it is about."""

from __future__ import annotations

from random import Random

from .task import Task, ask, story

KIND = "summary"

ASK = (
    "Sum up the story in one sentence.",
    "Summarise the story in one sentence.",
    "Give the gist of this story.",
    "What is this story about? One sentence, please.",
    "Write a one-line summary.",
)


def make(r: Random, split: str) -> Task:
    """A story and its gist."""
    told, key = story(r, split)
    turn = ask(r, r.choice(ASK), told.text.strip(), "\n\n")
    return Task(KIND, (turn,), (told.gist,), "span_f1", {}, key)
