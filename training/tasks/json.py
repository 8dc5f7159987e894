"""JSON: write an object from a description, take a field out of it, change one."""

from __future__ import annotations

import json
from random import Random

from ..words import CITIES, COLOURS, FOODS, JOBS, NAMES, THINGS, join_words, with_article
from .task import Task, ask, pick

KIND = "json"

WRITE = ("Write this as JSON.", "Make a JSON object of this.", "Turn this into JSON.")
FIELD = ("What is the {0}?", "Give the {0}.", "Extract the field {0}.", 'Which value has "{0}"?')
SET = ("Set {0} to {1}.", "Change {0} to {1}.", "Write it again with {0} = {1}.")
VALUES = {
    "name": lambda r: r.choice(NAMES),
    "age": lambda r: r.randint(6, 90),
    "city": lambda r: r.choice(CITIES),
    "job": lambda r: r.choice(JOBS),
    "colour": lambda r: r.choice(COLOURS),
    "thing": lambda r: r.choice(THINGS),
    "price": lambda r: r.randint(1, 99),
    "count": lambda r: r.randint(1, 20),
    "id": lambda r: r.randint(1, 999),
    "active": lambda r: r.random() < 0.5,
    "friend": lambda r: r.choice(NAMES),
    "likes": lambda r: r.sample(FOODS, r.randint(1, 3)),
}
PEOPLE = ("name", "age", "city", "job", "likes", "friend")
GOODS = ("thing", "colour", "price", "count", "id", "active")
SENTENCE = {
    "age": "is {} years old",
    "city": "lives in {}",
    "job": "is {}",
    "likes": "likes {}",
    "friend": "is a friend of {}",
}


def record(r: Random) -> dict:
    """A person or a thing for sale, with three to five fields."""
    fields = r.choice([PEOPLE, GOODS])
    kept = [0, *sorted(r.sample(range(1, len(fields)), r.randint(2, 4)))]
    return {fields[i]: VALUES[fields[i]](r) for i in kept}


def format_value(value: object) -> str:
    """A value as a description says it."""
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, bool):
        return json.dumps(value)
    return str(value)


def describe_record(r: Random, found: dict) -> str:
    """The record in words: 'name: Ada; age: 12', or in a sentence where it is a person."""
    if "name" not in found or r.random() < 0.5:
        return r.choice(["; ", "\n"]).join(f"{key}: {format_value(value)}" for key, value in found.items())
    said = []
    for key, value in list(found.items())[1:]:
        if key == "job":
            words = with_article(value)
        elif key == "likes":
            words = join_words(value)
        else:
            words = str(value)
        said.append(SENTENCE[key].format(words))
    return f"{found['name']} {join_words(said)}."


def make(r: Random, split: str) -> Task:
    """A record described, asked or changed."""
    form = r.choice(["write", "write", "field", "set"])
    found = pick(split, lambda: record(r))
    content, text = repr(found), json.dumps(found)
    if form == "write":
        turn = ask(r, r.choice(WRITE), describe_record(r, found))
        return Task(KIND, (turn,), (text,), "json", {"form": form, "fields": len(found)}, content)
    key = r.choice([k for k in found if not isinstance(found[k], (list, bool))])
    if form == "field":
        turn = ask(r, r.choice(FIELD).format(key), text)
        return Task(
            KIND, (turn,), (format_value(found[key]),), "exact", {"form": form, "fields": len(found)}, content
        )
    new = found[key]
    while new == found[key]:
        new = VALUES[key](r)
    turn = ask(r, r.choice(SET).format(key, new), text)
    return Task(
        KIND,
        (turn,),
        (json.dumps(found | {key: new}),),
        "json",
        {"form": form, "fields": len(found)},
        content,
    )
