"""Counts of the torch calls that Python makes: a step's overhead in Python, the same on every machine."""

from __future__ import annotations

from typing import Any

from torch.overrides import TorchFunctionMode


class TorchCalls(TorchFunctionMode):
    """Counts, while it is entered, every operation on tensors and every number read from one; `of`: counts by name."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        if name != "__get__":  # a look at a shape or a device
            self.of[name] = self.of.get(name, 0) + 1
        return func(*args, **(kwargs or {}))

    @property
    def count(self) -> int:
        """The count over all names."""
        return sum(self.of.values())
