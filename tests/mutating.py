"""Inputs for the fuzzers: valid documents and files with some of their places changed, drawn by Hypothesis."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

MINUTES = "DECODESCOPE_FUZZ_MINUTES"
DEFAULT_MINUTES = 20.0
EXAMPLES = 200  # of one call of Hypothesis; the clock is looked at between calls
GROWTH = 1 << 30  # bytes by which a fuzzer's process may grow

_NUMBERS = (0, -1, 1, 2, 3, 255, 1 << 15, (1 << 31) - 1, 1 << 31, (1 << 53) + 1, (1 << 63) - 1, 1 << 64)
_ODD: tuple[Any, ...] = (
    *_NUMBERS,
    *(float("nan"), float("inf"), -0.0, 0.5, 1e308),
    *(None, True, False, "", "x", "\x00", "\ud800", "../../etc/passwd", "a" * 5000, "é" * 40),
    *([], {}, [[]], [None], {"": 0}, [1, 2, 3]),
)


def values() -> st.SearchStrategy[Any]:
    """Any JSON value, and odd ones more often than others."""
    return st.one_of(
        st.sampled_from(_ODD),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.lists(st.integers(-3, 300), max_size=4),
        st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    )


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value in a document."""
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    else:
        return []
    return [(value, key) for key in keys] + [place for key in keys for place in _places(value[key])]


@st.composite
def documents(draw: st.DrawFn, sources: list[Any]) -> Any:
    """A JSON document with one to three places set to another value, to a value from elsewhere in it, renamed or left out."""
    changed = copy.deepcopy(draw(st.sampled_from(sources)))
    for _ in range(draw(st.integers(1, 3))):
        places = _places(changed)
        if not places:
            return copy.deepcopy(draw(values()))
        container, key = places[draw(st.integers(0, len(places) - 1))]
        way = draw(st.sampled_from(("set", "set", "copy", "remove", "rename")))
        if way == "set":
            container[key] = copy.deepcopy(draw(values()))
        elif way == "copy":
            other, there = places[draw(st.integers(0, len(places) - 1))]
            container[key] = copy.deepcopy(other[there])
        elif way == "rename" and isinstance(container, dict):
            container[draw(st.text(max_size=6))] = container.pop(key)
        else:
            del container[key]
    return changed


@st.composite
def files(draw: st.DrawFn, sources: list[bytes], first: int = 1 << 20) -> bytes:
    """A file with one to four places changed: a byte, a number of 4 or 8 bytes, a part cut out, repeated or put in.

    first: bytes at its beginning in which the places lie
    """
    data = bytearray(draw(st.sampled_from(sources)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(min(len(data), first) - 1, 0)))
        size = draw(st.integers(1, 16))
        way = draw(st.sampled_from(("byte", "number", "number", "cut", "end", "repeat", "put")))
        if way == "byte":
            data[at : at + 1] = bytes([draw(st.integers(0, 255))])
        elif way == "number":
            width = draw(st.sampled_from((4, 8)))
            number = draw(st.one_of(st.sampled_from(_NUMBERS), st.integers(0, 1 << 64)))
            data[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
        elif way == "cut":
            del data[at : at + size]
        elif way == "end":
            del data[at:]
        elif way == "repeat":
            data[at:at] = data[at : at + size]
        else:
            data[at:at] = draw(st.binary(max_size=size))
    return bytes(data)


@st.composite
def texts(draw: st.DrawFn, sources: list[str], words: list[str]) -> str:
    """A text with one to four parts cut out, repeated, exchanged for a word, or put in."""
    text = draw(st.sampled_from(sources))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        end = at + draw(st.integers(0, 12))
        word = draw(st.one_of(st.sampled_from(words), st.text(max_size=6), st.just(text[at:end] * 2)))
        text = text[:at] + word + text[draw(st.sampled_from((at, end))) :]
    return text


def run_for_minutes(inputs: st.SearchStrategy[Any], test: Callable[[Any], object], where: Path) -> int:
    """Give inputs to a test until its minutes are over; how many it got.

    where: a folder in which Hypothesis keeps what failed, to begin with it the next time
    An input after which the test raises is made as small as possible and raised with it; so is growth of the memory.
    """
    from hypothesis.database import DirectoryBasedExampleDatabase

    until = time.monotonic() + 60 * float(os.environ.get(MINUTES, DEFAULT_MINUTES))
    begun = psutil.Process().memory_info().rss
    count = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=DirectoryBasedExampleDatabase(where),
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    )
    @given(inputs)
    def fuzz(value: Any) -> None:
        nonlocal count
        count += 1
        test(value)

    while time.monotonic() < until:
        fuzz()
        assert psutil.Process().memory_info().rss - begun < GROWTH, "the readers keep what they refused"
    return count
