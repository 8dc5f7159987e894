"""A few sentences about two or three people, and what can be asked about each: short stuff for questions."""

from __future__ import annotations

from random import Random

from ..stories import Story, StoryFact
from ..words import (
    ANIMALS,
    CITIES,
    COLOURS,
    DAYS,
    FOODS,
    HIDING,
    JOBS,
    NAMES,
    PLACES,
    THINGS,
    TIMES,
    with_article,
)
from .task import pick

# a sentence, then questions about it, each with its answer; {n} is somebody, {m} somebody else
LINES: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("{n} lives in {city}.", (("Where does {n} live?", "{city}"), ("Who lives in {city}?", "{n}"))),
    ("{n} is {job}.", (("What is the job of {n}?", "{job}"), ("Who is {job}?", "{n}"))),
    ("{n} is {age} years old.", (("How old is {n}?", "{age}"),)),
    (
        "{n} has {colour} {thing}.",
        (("What does {n} have?", "{colour} {thing}"), ("Who has {colour} {thing}?", "{n}")),
    ),
    (
        "{n} put the {thing} {spot}.",
        (("Where is the {thing} now?", "{spot}"), ("Who put the {thing} {spot}?", "{n}")),
    ),
    (
        "{n} gave {m} some {food}.",
        (("What did {n} give {m}?", "some {food}"), ("Who gave {m} some {food}?", "{n}")),
    ),
    (
        "{n} met {m} at the {place} {time}.",
        (("Where did {n} meet {m}?", "at the {place}"), ("When did {n} meet {m}?", "{time}")),
    ),
    ("{n} likes {food}.", (("What does {n} like?", "{food}"), ("Who likes {food}?", "{n}"))),
    (
        "The {animal} of {n} is called {pet}.",
        (("What is the {animal} of {n} called?", "{pet}"), ("Who has {some} called {pet}?", "{n}")),
    ),
    (
        "On {day} {n} went to the {place}.",
        (("When did {n} go to the {place}?", "{day}"), ("Where did {n} go on {day}?", "the {place}")),
    ),
    ("{n} wants to buy {some_thing}.", (("What does {n} want to buy?", "{some_thing}"),)),
)


def scene(r: Random) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Four to eight sentences, and questions with their answers; every question has one answer."""
    names = r.sample(NAMES, 8)
    people, pets = names[: r.randint(2, 3)], names[3:]
    words = {
        "city": CITIES,
        "thing": THINGS,
        "spot": HIDING,
        "food": FOODS,
        "place": PLACES,
        "time": TIMES,
        "animal": ANIMALS,
        "day": DAYS,
    }
    left = {key: r.sample(found, len(found)) for key, found in words.items()}
    jobs, ages = r.sample(JOBS, 3), r.sample(range(5, 90), 3)
    lines, asked = [], []
    pairs = [(i, j) for i in range(len(LINES)) for j in range(len(people))]
    for i, j in sorted(r.sample(pairs, r.randint(4, min(8, len(pairs)))), key=lambda _: r.random()):
        shape, questions = LINES[i]
        given = {key: found[len(lines) % len(found)] for key, found in left.items()}
        given |= {
            "n": people[j],
            "m": r.choice([p for p in people if p != people[j]]),
            "job": with_article(jobs[j]),
            "age": str(ages[j]),
            "colour": with_article(r.choice(COLOURS)),
            "pet": pets[j],
            "some": with_article(given["animal"]),
            "some_thing": with_article(given["thing"]),
        }
        lines.append(shape.format(**given))
        asked += [(question.format(**given), answer.format(**given)) for question, answer in questions]
    return " ".join(lines), tuple(asked)


def make_scene(r: Random, split: str) -> tuple[Story, str]:
    """A scene as a story without a title, and its key; the gist is its first sentence."""
    seed = pick(split, lambda: r.getrandbits(48))
    text, asked = scene(Random(seed))
    return Story("", text, tuple(StoryFact(*pair) for pair in asked), text[: text.index(".") + 1]), repr(seed)
