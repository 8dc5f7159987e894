"""The engine: decodes with real models and records each step.

Names are loaded on first use, so that `decodescope.engine.trace` can be read where torch is not installed.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

if __name__ == "engine":
    raise ImportError(
        "import decodescope.engine, not engine: the plain name would make a second copy of every class."
    )

if TYPE_CHECKING:
    from decodescope.engine.core.params import ParamError as ParamError
    from decodescope.engine.session.load import load as load
    from decodescope.engine.session.method import Method as Method
    from decodescope.engine.session.method import MethodError as MethodError
    from decodescope.engine.session.own_parts import load_parts as load_parts
    from decodescope.engine.session.run import Run as Run
    from decodescope.engine.session.run import run as run
    from decodescope.engine.session.session import Session as Session
    from decodescope.engine.session.start import BackgroundRun as BackgroundRun
    from decodescope.engine.session.start import start as start

_HOME = {
    "load": "session.load",
    "load_parts": "session.own_parts",
    "Method": "session.method",
    "MethodError": "session.method",
    "ParamError": "core.params",
    "Run": "session.run",
    "run": "session.run",
    "Session": "session.session",
    "BackgroundRun": "session.start",
    "start": "session.start",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"decodescope.engine has no {name!r}; it offers {', '.join(__all__)}")
    member = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    _load_installed()
    return member


@cache
def _load_installed() -> None:
    """Parts that installed packages offer are there as soon as the engine is used."""
    importlib.import_module(".session.own_parts", __name__).warn_of_installed()
