"""Short lists: reverse, sort, shuffle, replace, insert, remove, take the first or last, count.

One answer is right, but for `shuffle`, where any other order is: its reference is the list as it was given.
"""

from __future__ import annotations

from random import Random

from ..words import ANIMALS, CITIES, COLOURS, FOODS, JOBS, NAMES, PLACES, THINGS
from .task import Task, ask, pick

KIND = "lists"

GROUPS = (NAMES, ANIMALS, COLOURS, FOODS, JOBS, PLACES, THINGS, CITIES)
LENGTHS = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
WEIGHTS = (6, 6, 6, 5, 4, 3, 3, 2, 2, 2)
ASK = {
    "reverse": ("Reverse this list.", "Write this list backwards.", "Turn the order round."),
    "sort": ("Sort this list.", "Put this list in order.", "Sort upwards."),
    "sort_down": ("Sort this list, last first.", "Sort in falling order.", "Sort downwards."),
    "shuffle": ("Shuffle this list.", "Put this list in another order.", "Mix up the order."),
    "replace": ("Replace {old} by {new}.", "Put {new} in the place of {old}.", "Change {old} to {new}."),
    "insert": ("Put {new} after {old}.", "Insert {new} after {old}.", "Add {new} behind {old}."),
    "remove": ("Remove {old}.", "Take {old} out.", "Write the list without {old}."),
    "first": ("Give the first {n}.", "Take the first {n}.", "Name the first {n} items."),
    "last": ("Give the last {n}.", "Take the last {n}.", "Name the last {n} items."),
    "count": ("How many items are there?", "Count the items.", "How long is this list?"),
}


def items(r: Random) -> tuple[str, ...]:
    """Three to twelve different words of one group, or numbers below 100."""
    n = r.choices(LENGTHS, WEIGHTS)[0]
    found = [str(x) for x in r.sample(range(100), n)] if r.random() < 0.3 else r.sample(r.choice(GROUPS), n)
    return tuple(found)


def apply_operation(form: str, given: list[str], old: str, new: str, n: int, r: Random) -> list[str]:
    """The list after the operation."""
    if form == "shuffle":
        return shuffle_list(given, r)
    at = given.index(old)
    order = int if given[0].isdigit() else str
    return {
        "reverse": given[::-1],
        "sort": sorted(given, key=order),
        "sort_down": sorted(given, key=order, reverse=True),
        "replace": [*given[:at], new, *given[at + 1 :]],
        "insert": [*given[: at + 1], new, *given[at + 1 :]],
        "remove": given[:at] + given[at + 1 :],
        "first": given[:n],
        "last": given[-n:],
        "count": [str(len(given))],
    }[form]


def shuffle_list(given: list[str], r: Random) -> list[str]:
    """The list in another order."""
    while (found := r.sample(given, len(given))) == given:
        pass
    return found


def operation_text(r: Random, form: str, given: list[str]) -> tuple[str, list[str]]:
    """What to do with a list, in words, and the list after it."""
    same = next(([*g] for g in GROUPS if given[0] in g and given[-1] in g), [str(x) for x in range(100)])
    old = r.choice(given)
    new = r.choice([x for x in same if x not in given])
    n = r.randint(2, len(given) - 1)
    result = apply_operation(form, given, old, new, n, r)
    return r.choice(ASK[form]).format(old=old, new=new, n=n), result


def make(r: Random, split: str) -> Task:
    """A list and what to do with it."""
    form = r.choice(list(ASK))
    given = list(content := pick(split, lambda: items(r)))
    words, result = operation_text(r, form, given)
    turn = ask(r, words, ", ".join(given))
    tags: dict[str, int | str] = {"form": form, "length": len(given)}
    if form == "shuffle":
        return Task(KIND, (turn,), (", ".join(result),), "shuffled", tags, repr(content), (", ".join(given),))
    return Task(KIND, (turn,), (", ".join(result),), "list", tags, repr(content))
