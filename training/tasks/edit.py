"""The same text again with one named change: another name, another word, another number, or right grammar."""

from __future__ import annotations

import re
from random import Random

from ..words import (
    ANIMALS,
    COLOURS,
    FOODS,
    NAMES,
    PLACES,
    THINGS,
    TRAITS,
    capitalize,
    count_noun,
    with_article,
)
from .task import Task, ask, pick

KIND = "edit"

# 'a' fits all
SHADES, GOODS = (
    [word for word in words if with_article(word).startswith("a ")] for words in (COLOURS, THINGS)
)
ASK = {
    "name": (
        "Write this again with {new} instead of {old}.",
        "Replace the name {old} by {new}.",
        "Change {old} to {new}.",
    ),
    "word": ("Replace {old} by {new}.", "Change the word {old} to {new}.", "Write {new} instead of {old}."),
    "variable": (
        "Rename {old} to {new}.",
        "Rename the variable {old} to {new}.",
        "Call {old} {new} instead.",
    ),
    "grammar": ("Fix the grammar.", "Correct the sentence.", "Write this without mistakes."),
}


def lines(r: Random) -> tuple[str, str, str, str]:
    """Three to five sentences; and the name, colour and thing that they speak of."""
    name, friend = r.sample(NAMES, 2)
    colour = r.choice(SHADES)
    thing = r.choice(GOODS)
    place = r.choice(PLACES)
    food = r.choice(FOODS)
    said = [
        f"{name} went to the {place} with {with_article(colour)} {thing}.",
        f"There {name} met {friend}.",
        f'"Is this your {colour} {thing}?" asked {friend}.',
        f'"Yes," said {name}.',
        f"{friend} and {name} ate {food}.",
        f"Then {friend} helped {name} to carry the {thing} home.",
        f"{name} put the {colour} {thing} on the table.",
        f"{friend} liked the {thing} of {name} very much.",
    ]
    kept = [0, *sorted(r.sample(range(1, len(said)), r.randint(2, 4)))]
    return " ".join(said[i] for i in kept), name, colour, thing


def code(r: Random) -> tuple[str, str]:
    """A small function and one of its variables."""
    name, result = r.sample(THINGS, 2)
    n = r.randint(2, 99)
    return r.choice(
        [
            f"def f({name}):\n    {result} = {name} + {n}\n    return {result} * {name}",
            f"{result} = 0\nfor {name} in range({n}):\n    {result} += {name}\nprint({result})",
            f"if {name} > {n}:\n    {result} = {name} - {n}\nelse:\n    {result} = {name}",
            f"{result} = []\nwhile {name} < {n}:\n    {result}.append({name})\n    {name} += 1",
        ]
    ), r.choice([name, result])


def make_sentence(r: Random) -> str:
    """One sentence without a mistake."""
    name, friend = r.sample(NAMES, 2)
    animal, thing, place, trait, colour = map(r.choice, (ANIMALS, THINGS, PLACES, TRAITS, COLOURS))
    n = r.randint(2, 12)
    return r.choice(
        [
            f"{name} has {count_noun(n, thing)} and {with_article(animal)}.",
            f"There are {count_noun(n, animal)} in the {place}.",
            f"{capitalize(with_article(animal))} is sitting on the {thing}.",
            f"{name} and {friend} are in the {place}.",
            f"{name} is {trait} and has {with_article(colour)} {thing}.",
            f"{name} goes to the {place} with {friend}.",
            f"{name} sees {with_article(trait)} {animal} in the {place}.",
            f"The {trait} {animal} has {with_article(thing)}.",
        ]
    )


def spoil_sentence(r: Random, sentence: str) -> str:
    """The sentence with one or two mistakes."""
    found = [sentence[0].lower() + sentence[1:], sentence.rstrip(".")]
    for old, new in (
        (" has ", " have "),
        (" is ", " are "),
        (" are ", " is "),
        (" goes ", " go "),
        (" sees ", " see "),
        (" the ", " the the "),
        (" an ", " a "),
        (" a ", " an "),
        (" and ", " and and "),
    ):
        if old in sentence:
            found.append(sentence.replace(old, new, 1))
    first = r.choice(found)
    return first.rstrip(".") if r.random() < 0.2 and first.endswith(".") else first


def make(r: Random, split: str) -> Task:
    """A text, the change, and the changed text."""
    form = r.choice(list(ASK))
    if form == "grammar":
        answer = pick(split, lambda: make_sentence(r))
        text = spoil_sentence(r, answer)
        old = ""
        new = ""
        content = answer
    elif form == "variable":
        text, old = content = pick(split, lambda: code(r))
        new = r.choice([t for t in THINGS if t not in text])
        answer = re.sub(rf"\b{old}\b", new, text)
    else:
        text, name, colour, thing = content = pick(split, lambda: lines(r))
        old = name if form == "name" else r.choice([colour, thing])
        if form == "name":
            same = NAMES
        elif old == colour:
            same = SHADES
        else:
            same = GOODS
        new = r.choice([word for word in same if word not in text])
        answer = re.sub(rf"\b{old}\b", new, text)
    turn = ask(r, r.choice(ASK[form]).format(old=old, new=new), text)
    return Task(KIND, (turn,), (answer,), "edit_distance", {"form": form}, repr(content))
