"""Tests in two sizes: the small one runs with every commit, the full one with `make nightly`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest


def sizes(names: str, *, usual: Any, full: Any) -> Callable[[Any], Any]:
    """The parameters `names` of a test, as `pytest.mark.parametrize` reads them, in both sizes; a tuple if they are several."""
    several = "," in names
    both = [(usual, "usual", ()), (full, "full", pytest.mark.nightly)]
    values = [pytest.param(*(x if several else (x,)), id=name, marks=marks) for x, name, marks in both]
    return pytest.mark.parametrize(names, values)


def thinned(every: int, *values: Iterable[Any]) -> list[Any]:
    """All crossings of `values`, for `pytest.mark.parametrize`. A commit takes one of `every`, in turns, so that each value
    meets several of the others; the rest is nightly."""
    return [
        pytest.param(*(x for _, x in crossing), marks=pytest.mark.nightly if sum(i for i, _ in crossing) % every else ())
        for crossing in product(*map(enumerate, values))
    ]
