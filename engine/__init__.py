"""The engine: decodes on real models and says, step by step, what it did.

Names are loaded on first use, so that `decodescope.engine.trace` can be read where torch is not installed.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if __name__ == "engine":
    raise ImportError(
        "import decodescope.engine, not engine: the plain name would make a second copy of every class."
    )

if TYPE_CHECKING:
    from decodescope.engine.core.params import ParamError as ParamError

    from .load import load as load
    from .method import Method as Method
    from .method import MethodError as MethodError
    from .run import Run as Run
    from .run import run as run
    from .session import Session as Session
    from .start import Running as Running
    from .start import start as start

_HOME = {
    "load": "load",
    "Method": "method",
    "MethodError": "method",
    "ParamError": "core.params",
    "Run": "run",
    "run": "run",
    "Session": "session",
    "Running": "start",
    "start": "start",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"decodescope.engine has no {name!r}; it offers {', '.join(__all__)}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


class _Engine(ModuleType):
    """`load` and `run` are functions here and files beside: importing a file would put the module in the function's place."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(
            name, getattr(value, name) if name in _HOME and isinstance(value, ModuleType) else value
        )


sys.modules[__name__].__class__ = _Engine
