"""Errors planted into one line of the shipped code, to see whether a check finds them."""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import pytest
import torch

from decodescope.engine.decoding.values.chance import invert_cdf


@dataclass(frozen=True)
class Bug:
    """A bug: `old` occurs once in the source of `where.name`, and `new` replaces it.

    look: how far the results are off. It is 0 without the bug; a failed assertion counts as infinity.
    """

    what: str
    where: Any
    name: str
    old: str
    new: str
    look: Callable[[], float]

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Compile the function again with the bug in it, and use it instead of the shipped one for this test."""
        shipped: FunctionType = getattr(self.where, self.name)
        source = textwrap.dedent(inspect.getsource(shipped))
        assert source.count(self.old) == 1, (
            f"{self.what}: {self.old!r} is no longer one line of {shipped.__qualname__}"
        )
        source = source.replace(self.old, self.new).replace("super()", "super(__class__, self)")
        scope = {**shipped.__globals__, "invert": invert_cdf, "torch": torch, "__class__": self.where}
        exec(compile("from __future__ import annotations\n" + source, self.what, "exec"), scope)
        monkeypatch.setattr(self.where, self.name, scope[self.name])

    def seen(self, monkeypatch: pytest.MonkeyPatch) -> float:
        """How far the results are off with the bug in the code."""
        assert self.look() <= 1e-12, "the world must be in order before the bug is put in"
        self.plant(monkeypatch)
        try:
            return self.look()
        except AssertionError:  # a check inside the walk stopped it, or an invalid distribution did
            return math.inf
