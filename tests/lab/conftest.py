"""A fixture that provides a browser page in which views are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .drawn import Drawn


@pytest.fixture
def drawn(driver: Any) -> Iterator[Drawn]:
    """A page to draw in, closed after the test."""
    made = Drawn(driver)
    yield made
    made.close()
