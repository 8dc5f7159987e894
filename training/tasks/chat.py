"""A talk of two or three turns about a story."""

from __future__ import annotations

from random import Random

from . import scenes
from .task import Task, ask, split_sentences, story

KIND = "chat"

ABOUT = (
    "What is the story about?",
    "Say in one sentence what the story is about.",
    "What happens here, in one sentence?",
)
TITLE = ("What is the story called?", "What is its title?", "What is the title of the story?")
FIRST = ("Say the first sentence again.", "How does the text begin?", "What is the first sentence?")
LAST = ("Say the last sentence again.", "How does the text end?", "What is the last sentence?")


def make(r: Random, split: str) -> Task:
    """A story or a short scene and a question, then one or two more questions about it."""
    form = r.choice(["scene", "story"])
    told, key = scenes.make_scene(r, split) if form == "scene" else story(r, split)
    text, lines = told.text.strip(), split_sentences(told.text)
    asked = [(f.question, f.answer) for f in r.sample(told.facts, min(len(told.facts), r.randint(1, 3)))]
    others = [(r.choice(FIRST), lines[0]), (r.choice(LAST), lines[-1])]
    if form == "story":
        others.append((r.choice(ABOUT), told.gist))
        if r.random() < 0.5:
            text = f"{told.title}\n\n{text}"
            others = [(r.choice(TITLE), told.title), *others[1:]]
    asked = [*asked, *r.sample(others, len(others))][: r.randint(2, 3)]
    r.shuffle(asked)
    turns = [question for question, _ in asked]
    turns[0] = ask(r, turns[0], text, "\n\n")
    return Task(
        KIND, tuple(turns), tuple(a for _, a in asked), "span_f1", {"form": form, "turns": len(turns)}, key
    )
