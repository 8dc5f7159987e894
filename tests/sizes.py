"""Tests in two sizes: the small one runs with every commit, the full one with `make nightly`.

There are as many nightly cases as all others together. They are made only if a run can reach them: see `reaches_nightly`.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import compress, count, product
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.expression import Expression

left_out = 0  # nightly cases that were not made, one parameter list at a time: products of several lists would be more
making = True  # whether nightly cases are made; tests/conftest.py sets it before any test is collected


def reaches_nightly(markers: str, arguments: Sequence[str]) -> bool:
    """Return whether a run with this `-m` and these arguments can hold a nightly case.

    It can if the expression is true for some test with this marker, or if an argument names a case by its id.
    """
    if not markers or any("[" in argument for argument in arguments):
        return True
    named = {
        word
        for word in markers.replace("(", " ").replace(")", " ").split()
        if word not in ("and", "or", "not")
    }
    others = sorted(named - {"nightly"})
    sets = [{"nightly", *compress(others, row)} for row in product((0, 1), repeat=len(others))]
    expression = Expression.compile(markers)
    return any(expression.evaluate(lambda name, there=there: name in there) for there in sets)


def prepare(config: pytest.Config) -> None:
    """Decide for this run whether nightly cases are made."""
    global making
    making = reaches_nightly(config.option.markexpr, config.args)


def nightly(cases: Iterable[Any]) -> Iterator[Any]:
    """Yield the `cases`, without the nightly ones if no run of this session can reach them.

    The nightly ones are those made with `pytest.param`.
    """
    global left_out
    for case in cases:
        if making or not any(mark.name == "nightly" for mark in getattr(case, "marks", ())):
            yield case
        else:
            left_out += 1


def sizes(names: str, *, usual: Any, full: Any) -> Callable[[Any], Any]:
    """The parameters `names` of a test, as `pytest.mark.parametrize` reads them, in both sizes; a tuple if they are several."""
    several = "," in names
    both = [(usual, "usual", ()), (full, "full", pytest.mark.nightly)]
    values = [pytest.param(*(x if several else (x,)), id=name, marks=marks) for x, name, marks in both]
    return pytest.mark.parametrize(names, [*nightly(values)])


def first_of(first: Any, *others: Any) -> list[Any]:
    """Values of a parameter, for `pytest.mark.parametrize`: a commit takes the first one, the nightly run all of them."""
    return [first, *nightly(pytest.param(value, marks=pytest.mark.nightly) for value in others)]


def thinned(every: int, *values: Iterable[Any]) -> list[Any]:
    """The product of `values`, for `pytest.mark.parametrize`.

    A commit takes one of `every`, in turns, so that each value meets several of the others; the rest is nightly.
    """
    crossings = product(*map(enumerate, values))
    return [
        *nightly(
            pytest.param(
                *(x for _, x in crossing),
                marks=pytest.mark.nightly if sum(i for i, _ in crossing) % every else (),
            )
            for crossing in crossings
        )
    ]


def first_settings(variants: Iterable[tuple[str, Any]], *values: Iterable[Any]) -> list[Any]:
    """The product of parts in their settings, (name, settings), with `values`, for `pytest.mark.parametrize`.

    A commit takes those of each part's first settings; the rest is nightly.
    """
    names, cases = set[str](), []
    for name, settings in variants:
        marks = pytest.mark.nightly if name in names else ()
        cases += [pytest.param(name, settings, *crossing, marks=marks) for crossing in product(*values)]
        names.add(name)
    return [*nightly(cases)]


@cache
def commit() -> str:
    """The checked-out commit; an empty string without git."""
    try:
        return subprocess.run(
            ["git", "-C", Path(__file__).parent, "rev-parse", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
    except OSError:
        return ""


def draw_number(commit: str) -> int:
    """A number that a commit's hash gives: what a test takes by it changes from commit to commit, and not within one."""
    return int.from_bytes(hashlib.sha256(commit.encode()).digest()[:8], "big")


def by_turns(every: int, cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test: a commit takes one of `every`; the rest is nightly.

    The commit's hash says which ones, so that over time each is taken. `cases`: values, tuples of them where a test has
    several, or `pytest.param`; those that are nightly already stay so and are not counted.
    """
    turn, taken = count(draw_number(commit()) % every), []
    for case in cases:
        if not hasattr(case, "marks"):
            case = pytest.param(*(case if isinstance(case, tuple) else (case,)))
        if any(mark.name == "nightly" for mark in case.marks) or not next(turn) % every:
            taken.append(case)
        else:
            taken.append(pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.nightly]))
    return [*nightly(taken)]
