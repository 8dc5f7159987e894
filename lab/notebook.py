"""Notebook: the calls of a notebook cell, to look at what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.trace import SUFFIX, Trace, TraceError, frame
from decodescope.engine.trace import open_trace as open_file
from decodescope.lab.decision.explain import Explanation, decisions, explain
from decodescope.lab.reports.report import Report
from decodescope.lab.reports.shown import report
from decodescope.lab.views.compare import Comparison, compare
from decodescope.lab.views.export import export_html
from decodescope.lab.views.perfetto import export_perfetto
from decodescope.lab.views.scope import VIEWS, Scope

__all__ = [
    "Comparison",
    "Explanation",
    "Report",
    "Scope",
    "compare",
    "decisions",
    "explain",
    "export_html",
    "export_perfetto",
    "frame",
    "open_trace",
    "report",
    "show",
]
EXAMPLES = Path(__file__).resolve().parent.parent / "assets" / "traces"


def show(trace: Trace, step: int | None = None, views: Sequence[str] = VIEWS, profile: HardwareProfile | None = None) -> Scope:
    """The trace step by step; begins at `step`, else at its last one. With the `profile` of the machine that ran it there
    is a roofline."""
    made = Scope(trace, views, profile)
    if step is not None:
        made.step = range(len(trace.steps))[step]
    return made


def open_trace(name: str | Path) -> Trace:
    """A trace by path, or one of the shipped examples by name."""
    path = Path(name).expanduser()
    if path.suffix == SUFFIX or path.exists():
        return open_file(path)
    example = EXAMPLES / f"{name}{SUFFIX}"
    if not example.is_file():
        known = ", ".join(sorted(p.stem for p in EXAMPLES.glob(f"*{SUFFIX}"))) or "none here"
        raise TraceError(f"There is no file {name}, and no example of that name; examples: {known}.")
    return open_file(example)
