"""Notebook: the calls of a notebook cell, to look at what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from decodescope.engine.core.arguments import whole
from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.trace import frame
from decodescope.engine.trace.file.named_trace import open_named as open_trace
from decodescope.engine.trace.file.named_trace import trace_of
from decodescope.lab.decision.explain import Explanation, decisions, explain
from decodescope.lab.reports.report import Report
from decodescope.lab.reports.shown import report
from decodescope.lab.views.compare import Comparison, compare
from decodescope.lab.views.controls import Controls, controls
from decodescope.lab.views.export import export_html
from decodescope.lab.views.perfetto import export_perfetto
from decodescope.lab.views.scope import VIEWS, Scope
from decodescope.lab.views.watched import Live, Watched

from .charts import figure

__all__ = [
    "Comparison",
    "Controls",
    "Explanation",
    "Report",
    "Scope",
    "Watched",
    "compare",
    "controls",
    "decisions",
    "explain",
    "export_html",
    "export_perfetto",
    "figure",
    "frame",
    "open_trace",
    "report",
    "show",
]


@overload
def show(
    given: Live, step: None = None, views: Sequence[str] = VIEWS, profile: HardwareProfile | None = None
) -> Watched: ...
@overload
def show(
    given: Any, step: int | None = None, views: Sequence[str] = VIEWS, profile: HardwareProfile | None = None
) -> Scope: ...
def show(
    given: Any, step: int | None = None, views: Sequence[str] = VIEWS, profile: HardwareProfile | None = None
) -> Scope | Watched:
    """A run step by step: a trace, what `run` returned, a path, or the name of an example. Begins at `step`, counted from the
    end where it is negative, else at its last one. With the `profile` of the machine that ran it there is a roofline.

    What `start` returned is shown while it goes, with a Stop; such a run has no `step` to begin at.
    Raises TraceError for what is no trace, ParamError for a step that it does not have.
    """
    if isinstance(given, Live):
        if step is not None:
            raise ParamError(
                "A run that goes on is shown at its newest step: leave step out, or show(running.trace, step)."
            )
        return Watched(given, views, profile)
    trace = trace_of(given)
    scope = Scope(trace, views, profile)
    if step is not None:
        count = len(trace.steps)
        scope.step = range(count)[whole(step, "step", -count, count - 1)]
    return scope
