"""Errors put into one line of the shipped code, to see whether a check finds them."""

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
    """`old` stands once in the source of `where.name`; `new` stands there instead. look: how far things are off, which is
    nothing as long as they are in order; a failed assertion counts as infinitely far."""

    what: str
    where: Any
    name: str
    old: str
    new: str
    look: Callable[[], float]

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Compile the function again with the bug in it, and put it in its place for this test."""
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
        """How far things are off with the bug in it."""
        assert self.look() <= 1e-12, "the world must be in order before the bug is put in"
        self.plant(monkeypatch)
        try:
            return self.look()
        except AssertionError:  # a check inside the walk, or a law that is none, stopped it
            return math.inf
