"""A question about a story or a short scene; the text contains the answer word for word."""

from __future__ import annotations

from random import Random

from . import scenes
from .task import Task, ask, story

KIND = "qa"

ASK = ("{}", "{}", "Question: {}", "Answer from the text: {}", "Read the text. {}")


def make(r: Random, split: str) -> Task:
    """A text, one of its facts asked for, and the fact's own words."""
    form = "scene" if r.random() < 0.6 else "story"
    told, key = scenes.make_scene(r, split) if form == "scene" else story(r, split)
    fact = r.choice(told.facts)
    turn = ask(r, r.choice(ASK).format(fact.question), told.text.strip(), "\n\n")
    return Task(KIND, (turn,), (fact.answer,), "span_f1", {"form": form}, key)
