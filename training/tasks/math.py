"""Sums of one step, and word problems whose answer writes the steps out."""

from __future__ import annotations

from random import Random

from ..words import ANIMALS, COLOURS, FOODS, NAMES, PLACES, THINGS, pluralize
from .task import Task, pick

KIND = "math"

ASK = ("What is {}?", "{} = ?", "How much is {}?", "Compute {}.", "Calculate {}.")
ASK_WORDS = ("What is {}?", "How much is {}?")
WORD = {"+": "plus", "-": "minus"}

# sign of each step, then the text: {n}, {m} people, {what} a thing in plural, {a} {b} {c} the numbers
ONE = (
    ("+", "{n} has {a} {what}. {m} gives {n} {b} more. How many {what} does {n} have now?"),
    ("-", "{n} has {a} {what}. {n} gives {b} of them to {m}. How many {what} does {n} have left?"),
    ("+", "There are {a} {what} in the {p} and {b} {what} outside. How many {what} are there in all?"),
    ("-", "There were {a} {what} in the {p}. {b} were taken away. How many {what} are left?"),
    ("+", "{n} found {a} {what} and {m} found {b}. How many {what} did they find together?"),
    ("-", "{n} has {a} {what} and {m} has {b}. How many more {what} does {n} have?"),
    ("+", "A {c1} box holds {a} {what}, a {c2} box holds {b}. How many {what} are in both boxes?"),
    ("-", "{n} needs {a} coins and has {b}. How many coins are missing?"),
)
TWO = (
    (
        "+-",
        "{n} has {a} {what}. {m} gives {n} {b} more, then {n} loses {c}. How many {what} does {n} have now?",
    ),
    ("-+", "{n} had {a} {what}, sold {b} and bought {c}. How many {what} does {n} have now?"),
    ("--", "There were {a} {what} in the {p}. {n} took {b} and {m} took {c}. How many {what} are left?"),
    ("++", "{n} found {a} {what} on one day, {b} on the next and {c} on the third. How many {what} is that?"),
)


def value(sign: str, a: int, b: int) -> int:
    """a + b or a - b."""
    return a + b if sign == "+" else a - b


def sum_of(r: Random, signs: str) -> tuple[str, tuple[int, ...]]:
    """Numbers below 100 for these signs, no result below 0 or above 99 on the way but the last."""
    while True:
        numbers = tuple(r.randint(1, 99) for _ in range(len(signs) + 1))
        total, fits = numbers[0], True
        for i, (sign, b) in enumerate(zip(signs, numbers[1:], strict=True)):
            total = value(sign, total, b)
            fits = fits and total >= 0 and (total < 100 or i == len(signs) - 1)
        if fits:
            return signs, numbers


def steps(signs: str, numbers: tuple[int, ...]) -> list[str]:
    """'a + b = c' for every step."""
    lines, total = [], numbers[0]
    for sign, b in zip(signs, numbers[1:], strict=True):
        lines.append(f"{total} {sign} {b} = {value(sign, total, b)}")
        total = value(sign, total, b)
    return lines


def key(signs: str, numbers: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """What is to be computed; a + b is b + a."""
    return signs, tuple(sorted(numbers)) if signs.strip("+") == "" else numbers


def numbers_of(r: Random, split: str, signs: str) -> tuple[int, ...]:
    """Numbers for these signs whose sum belongs to a split."""
    drawn: list[tuple[int, ...]] = []

    def draw() -> tuple[str, tuple[int, ...]]:
        drawn.append(sum_of(r, signs)[1])
        return key(signs, drawn[-1])

    pick(split, draw)
    return drawn[-1]


def make(r: Random, split: str, form: str = "") -> Task:
    """A sum; `form` is "one-step" or "words", else drawn."""
    form = form or r.choice(["one-step", "words"])
    texts = ONE if form == "one-step" or r.random() < 0.5 else TWO
    signs, text = r.choice(texts)
    numbers = numbers_of(r, split, signs)
    content, lines = key(signs, numbers), steps(signs, numbers)
    if form == "one-step":
        a, b = numbers
        turn = (
            r.choice(ASK).format(f"{a} {signs} {b}")
            if r.random() < 0.75
            else r.choice(ASK_WORDS).format(f"{a} {WORD[signs]} {b}")
        )
        return Task(KIND, (turn,), (lines[0],), "number", {"form": form, "steps": 1}, repr(content))
    n, m = r.sample(NAMES, 2)
    first, second = r.sample(COLOURS, 2)
    while first[0] in "aeiou" or second[0] in "aeiou":
        first, second = r.sample(COLOURS, 2)
    what = r.choice(
        [
            pluralize(r.choice(THINGS)),
            pluralize(r.choice(ANIMALS)),
            r.choice([f for f in FOODS if f.endswith("s")]),
        ]
    )
    turn = text.format(
        n=n,
        m=m,
        what=what,
        p=r.choice(PLACES),
        c1=first,
        c2=second,
        **dict(zip("abc", numbers, strict=False)),
    )
    answer = f"{', '.join(lines)}. Answer: {lines[-1].split()[-1]}"
    return Task(KIND, (turn,), (answer,), "number", {"form": form, "steps": len(lines)}, repr(content))
