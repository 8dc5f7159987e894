"""Stories from a small world with a state: who is there, what they carry, what they did; and talks between people.

    from decodescope.training.stories import tell
    story = tell(Random(7))

A story knows its title, some questions with their answers, and the one sentence that says what it is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .plots import PLOTS
from .tale import SEASONS, SKIES, Tale
from .talks import talk

__all__ = ["Story", "StoryFact", "talk", "tell"]


@dataclass(frozen=True)
class StoryFact:
    """A question about a story, and the words of the story that answer it."""

    question: str
    answer: str


@dataclass(frozen=True)
class Story:
    """A story: its text is paragraphs with an empty line between; `gist` is one of its sentences."""

    title: str
    text: str
    facts: tuple[StoryFact, ...]
    gist: str


def tell(r: Random) -> Story:
    """A story of 150 to 500 words, drawn from `r`."""
    t = Tale(
        r,
        furry=r.random() < 0.3,
        airy=r.random() < 0.4,
        season=r.choice(SEASONS),
        hour=r.choice([0, 1, 1, 2]),
    )
    t.sky = r.choice(SKIES[t.season])
    t.cast("h", young=True)
    t.cast("f", young=True, unlike="h")
    t.join("h")
    begin(t)
    r.choice(PLOTS)(t)
    t.title = t.draw("^" + t.title)
    text = "\n\n".join(" ".join(block) for block in t.blocks if block) + "\n"
    facts = {q: StoryFact(q, a) for q, a in t.asked if a in text}
    return Story(t.title, text, tuple(facts.values()), t.gist)


def begin(t: Tale) -> None:
    """Say who the story is about, where they live, and who the friend is."""
    t.put(
        home="[a village|a small town|a town] [by the sea|in the hills|between two rivers|at the edge of a forest|where the"
        " road ends|with crooked roofs]",
        love="[liked to [sing|read|climb trees|collect stones|count things|watch the clouds|tell jokes|get up early|build"
        " things]|could [whistle with two fingers|run faster than anyone|draw birds|walk on {h.his} hands|wiggle both"
        " ears]|was afraid of [nothing but geese|the dark|thunder|big dogs]|wanted to [see the sea|know everything|be"
        " a sailor|live in a lighthouse]]",
    )
    t.say(
        "[Once upon a time there was|There once was|In {home} lived|In {home} there lived|Not long ago there was] a~"
        " {h.trait} {h.kind} [named|called] {h}[| who {love}]."
    )
    t.say(
        "[{f} was {h.his} best friend.|^{h.his} best friend was {f}[|, a~ {f.trait} {f.kind}].|Next door lived {f}, a~"
        " {f.trait} {f.kind}.|{h} and {f} had been friends [for as long as they could remember|since the first day of"
        " school].|One hardly ever saw {h} without {f}[|, a~ {f.kind} of the same age].|{h} had a friend, {f}, who was"
        " [always {f.trait}|as {f.trait} as anyone could be].]"
    )
    t.rest()
