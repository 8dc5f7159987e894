"""The browser in which the views are drawn: one for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser import browser

from .drawn import Drawn


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """The browser."""
    with browser() as made:
        yield made


@pytest.fixture
def drawn(driver: Any) -> Iterator[Drawn]:
    """A place to draw in, closed after the test."""
    made = Drawn(driver)
    yield made
    made.close()
