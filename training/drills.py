"""Plain drills: records, sums, counting, lists, things to recall and words to copy, as text without a chat around it.

They teach what decoding methods live on: a rule that goes on, a fact stated above, a row that comes again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from .tasks import split_of
from .tasks.math import key
from .words import (
    CITIES,
    COLOURS,
    FOODS,
    GROUPS,
    JOBS,
    MONTHS,
    NAMES,
    THINGS,
    capitalize,
    count_noun,
    pluralize,
)

SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


def person(r: Random) -> dict:
    """A flat record with plausible fields."""
    name = r.choice(NAMES)
    record = {
        "id": r.randint(1, 9999),
        "name": name,
        "age": r.randint(6, 90),
        "city": r.choice(CITIES),
        "job": r.choice(JOBS),
        "email": f"{name.lower()}@example.com",
        "active": r.random() < 0.7,
        "born": r.choice(MONTHS),
        "tags": r.sample(COLOURS, r.randint(0, 3)),
        "friends": r.sample(NAMES, r.randint(0, 2)),
    }
    keep = set(r.sample(list(record)[1:], r.randint(3, len(record) - 1)))
    return {key: value for key, value in record.items() if key == "id" or key in keep}


def order(r: Random) -> dict:
    """An order whose total is the sum of its lines."""
    items = [
        {"product": r.choice(THINGS), "count": r.randint(1, 9), "price": r.randint(1, 40)}
        for _ in range(r.randint(1, 5))
    ]
    return {
        "order": r.randint(1000, 99999),
        "customer": r.choice(NAMES),
        "items": items,
        "total": sum(i["count"] * i["price"] for i in items),
        "paid": r.random() < 0.5,
    }


def settings(r: Random) -> dict:
    """A configuration file."""
    return {
        "name": f"{r.choice(COLOURS)}-{r.choice(THINGS)}",
        "version": f"{r.randint(0, 9)}.{r.randint(0, 20)}.{r.randint(0, 20)}",
        "debug": r.random() < 0.3,
        "server": {"host": "localhost", "port": r.choice([80, 443, 8080, r.randint(1024, 9999)])},
        "logging": {"level": r.choice(["debug", "info", "warning", "error"]), "file": None},
        "features": r.sample(
            ["search", "login", "export", "import", "cache", "theme", "upload", "mail"], r.randint(1, 5)
        ),
    }


def recipe(r: Random) -> dict:
    """A nested record of a meal."""
    return {
        "title": f"{capitalize(r.choice(FOODS))} with {r.choice(FOODS)}",
        "serves": r.randint(1, 8),
        "minutes": r.randint(1, 18) * 5,
        "ingredients": [
            {"name": food, "grams": r.randint(1, 40) * 25} for food in r.sample(FOODS, r.randint(2, 5))
        ],
        "author": {"name": r.choice(NAMES), "city": r.choice(CITIES)},
    }


def records(r: Random) -> str:
    """A JSON document, indented or on one line, or JSON lines."""
    make, indent = r.choice([person, person, order, settings, recipe]), r.choice([None, 2, 2, 4])
    if r.random() < 0.3:
        return "".join(json.dumps(make(r)) + "\n" for _ in range(r.randint(2, 8)))
    return (
        json.dumps([make(r) for _ in range(r.randint(2, 4))] if r.random() < 0.4 else make(r), indent=indent)
        + "\n"
    )


def sums(r: Random) -> str:
    """Lines of arithmetic, one kind to a document."""
    kind, top = r.choice("+-*+-*/"), r.choice([10, 20, 100, 1000])
    lines = []
    for _ in range(r.randint(6, 24)):
        a, b = r.randint(0, top), r.randint(1, min(top, 12) if kind in "*/" else top)
        if kind == "-":
            a, b = (max(a, b), min(a, b))
        elif kind == "/":
            a, b = (a * b, b)
        else:
            a, b = (a, b)
        if kind == "+":
            value = a + b
        elif kind == "-":
            value = a - b
        elif kind == "*":
            value = a * b
        else:
            value = a // b
        if split_of(repr(key(kind, (a, b)))) == "train":  # the others are asked in the tasks that measure
            lines.append(f"{a} {kind} {b} = {value}")
    return "\n".join(lines) + "\n"


def counting(r: Random) -> str:
    """A sequence that goes on by a fixed rule, or a table of one number."""
    if r.random() < 0.15:
        k = r.randint(2, 99)
        return "".join(f"{i} x {k} = {i * k}\n" for i in range(1, 11))
    start = r.randint(0, 300)
    by = r.choice([1, 1, 2, 3, 4, 5, 7, 10, 25])
    n = r.randint(10, 30)
    numbers = [start + by * i for i in range(n)]
    if r.random() < 0.3:
        numbers.reverse()
    return r.choice([", ".join, " ".join, "\n".join])(map(str, numbers)) + "\n"


def listing(r: Random) -> str:
    """A list of words: bullets or numbers, sometimes sorted, sometimes with how many of each."""
    group = r.choice(list(GROUPS))
    words = r.sample(GROUPS[group], r.randint(4, min(9, len(GROUPS[group]))))
    head = f"{capitalize(pluralize(group))}:"
    if r.random() < 0.4:
        words, head = sorted(words), f"{capitalize(pluralize(group))}, sorted:"
    elif group in ("animal", "thing") and r.random() < 0.6:
        words, head = [count_noun(r.randint(1, 20), word) for word in words], f"How many {pluralize(group)}:"
    mark = r.choice([lambda i: "- ", lambda i: "* ", lambda i: f"{i}. "])
    return head + "\n\n" + "".join(f"{mark(i)}{word}\n" for i, word in enumerate(words, 1))


def recall(r: Random) -> str:
    """Facts stated once and asked for later: what a dropped key would have answered."""
    names, kind = r.sample(NAMES, r.randint(4, 12)), r.choice(["number", "colour", "thing", "city", "job"])
    value = {
        "number": lambda: str(r.randint(100, 9999)),
        "colour": lambda: r.choice(COLOURS),
        "thing": lambda: r.choice(THINGS),
        "city": lambda: r.choice(CITIES),
        "job": lambda: r.choice(JOBS),
    }[kind]
    facts = {name: value() for name in names}
    lines = [f"The {kind} of {name} is {fact}." for name, fact in facts.items()]
    asked = r.sample(names, r.randint(2, len(names)))
    shape = r.choice(["What is the {k} of {n}? The {k} of {n} is {v}.", "{n}: {v}", "Q: {k} of {n}?\nA: {v}"])
    return "\n".join([*lines, "", *(shape.format(k=kind, n=n, v=facts[n]) for n in asked)]) + "\n"


def copies(r: Random) -> str:
    """A row of nonsense words, said again: practice in looking back."""
    words = ["".join(r.choices(SYLLABLES, k=r.randint(1, 3))) for _ in range(r.randint(6, 40))]
    return f"{' '.join(words)}\n" * r.randint(2, 4)


# kind -> (maker, share of the drills' bytes)
DRILLS: dict[str, tuple[Callable[[Random], str], float]] = {
    "records": (records, 0.4),
    "sums": (sums, 0.14),
    "counting": (counting, 0.06),
    "list": (listing, 0.1),
    "recall": (recall, 0.16),
    "copies": (copies, 0.14),
}
