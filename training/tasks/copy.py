"""Say again, letter for letter: words, words that mean nothing, lines of code, JSON."""

from __future__ import annotations

import json
from random import Random

from ..words import ANIMALS, CITIES, COLOURS, FOODS, JOBS, NAMES, PLACES, THINGS
from .task import Task, nonsense_word, pick

KIND = "copy"

WORDS = [*ANIMALS, *COLOURS, *FOODS, *JOBS, *PLACES, *THINGS]
ASK = (
    "Say this again:",
    "Repeat this:",
    "Copy this exactly:",
    "Write this once more:",
    "Repeat word for word:",
)
AFTER = (
    "Say this again.",
    "Repeat this.",
    "Copy this exactly.",
    "Write this once more.",
    "Repeat word for word.",
)


def words(r: Random) -> str:
    """Words that have nothing to do with each other."""
    return " ".join(r.choices(WORDS, k=r.randint(4, 24)))


def nonsense_words(r: Random) -> str:
    """Words that mean nothing."""
    return " ".join(nonsense_word(r, 1, 3) for _ in range(r.randint(3, 16)))


def code(r: Random) -> str:
    """A few lines of Python."""
    a, b, c = r.sample(THINGS, 3)
    n, m = r.randint(0, 99), r.randint(2, 99)
    lines = [
        f"{a} = {n}",
        f"{b} = {a} + {m}",
        f"{c} = [{n}, {m}, {n + m}]",
        f"print({a}, {b})",
        f"{a} = {b}[{n % 10}]",
        f'{b} = {c}.get("{a}", {n})',
        f"if {a} > {n}:\n    {b} = {a} - {m}",
        f"for {a} in {c}:\n    print({a})",
        f"def {b}({a}):\n    return {a} * {m}",
        f"{c}.append({a})",
        f"assert {a} == {n}",
        f"from {a} import {b}",
    ]
    return "\n".join(r.sample(lines, r.randint(2, 5)))


def record(r: Random) -> str:
    """A JSON object or a list of them."""
    found = [
        {
            "id": r.randint(1, 999),
            "name": r.choice(NAMES),
            "city": r.choice(CITIES),
            "tags": r.sample(COLOURS, r.randint(0, 3)),
            "active": r.random() < 0.5,
        }
        for _ in range(r.choice([1, 1, 2, 3]))
    ]
    return json.dumps(found if len(found) > 1 else found[0])


def make(r: Random, split: str) -> Task:
    """A text to be said again."""
    form, draw = r.choice([("words", words), ("nonsense", nonsense_words), ("code", code), ("json", record)])
    text = pick(split, lambda: draw(r))
    i = r.randrange(len(ASK))
    turn = f"{ASK[i]}\n{text}" if r.random() < 0.5 else f"{text}\n{AFTER[i]}"
    return Task(KIND, (turn,), (text,), "edit_distance", {"form": form}, repr(text))
