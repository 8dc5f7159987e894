"""The trace that a caller names: the trace itself, a run that has one, a path, or the name of a shipped example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from decodescope.engine.core.paths import expand_path

from ..values.limits import TraceError
from .trace import Trace, open_trace
from .writer import SUFFIX

EXAMPLES = Path(__file__).resolve().parents[3] / "assets" / "traces"


def trace_of(given: Any) -> Trace:
    """The trace of `given`: a Trace, a run (what `run` returned), a path, or an example's name. Raises TraceError."""
    trace = getattr(given, "trace", given)
    if isinstance(trace, Trace):
        if not hasattr(trace, "header"):
            raise TraceError(
                "The trace has no header yet: nothing of a run was recorded in it; let it begin first."
            )
        return trace
    if isinstance(given, str | Path):
        return open_named(given)
    raise TraceError(
        f"A trace is wanted, not a value of type {type(given).__name__}: give a trace, a run, or a file's path."
    )


def open_named(name: str | Path) -> Trace:
    """A trace by path, or one of the shipped examples by name."""
    path = expand_path(name)
    if path.suffix == SUFFIX or path.exists():
        return open_trace(path)
    example = EXAMPLES / f"{name}{SUFFIX}"
    if not example.is_file():
        known = ", ".join(sorted(p.stem for p in EXAMPLES.glob(f"*{SUFFIX}"))) or "none here"
        raise TraceError(f"There is no file {name}, and no example of that name; examples: {known}.")
    return open_trace(example)
