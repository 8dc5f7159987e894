"""Notebook: the functions for notebook cells that display recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.trace import frame
from decodescope.engine.trace.file.named_trace import open_named as open_trace
from decodescope.engine.trace.file.named_trace import trace_of
from decodescope.lab.decision.explain import Explanation, decisions, explain
from decodescope.lab.reports.notebook_report import report
from decodescope.lab.reports.report import AcceptanceReport
from decodescope.lab.views.compare import Comparison, compare
from decodescope.lab.views.controls import RunControls, controls
from decodescope.lab.views.export import export_html
from decodescope.lab.views.perfetto import export_perfetto
from decodescope.lab.views.run_widget import LiveRun, RunWidget
from decodescope.lab.views.scope import VIEWS, Scope

from .charts import figure

__all__ = [
    "AcceptanceReport",
    "Comparison",
    "Explanation",
    "RunControls",
    "RunWidget",
    "Scope",
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
    given: LiveRun, step: None = None, views: Sequence[str] = VIEWS, profile: HardwareProfile | None = None
) -> RunWidget: ...
@overload
def show(
    given: Any, step: int | None = None, views: Sequence[str] = VIEWS, profile: HardwareProfile | None = None
) -> Scope: ...
def show(
    given: Any, step: int | None = None, views: Sequence[str] = VIEWS, profile: HardwareProfile | None = None
) -> Scope | RunWidget:
    """A run step by step: a trace, the result of `run`, a path, or the name of an example.

    It begins at `step`, counted from the end if negative, else at its last one. With the `profile` of the machine that ran it
    there is a roofline.

    A run from `start` is shown while it runs, with a Stop button; such a run has no `step` to begin at. Raises TraceError if it
    is no trace, ParamError for a step that it does not have.
    """
    if isinstance(given, LiveRun):
        if step is not None:
            raise ParamError(
                "A run that goes on is shown at its newest step: leave step out, or show(running.trace, step)."
            )
        return RunWidget(given, views, profile)
    return Scope.at_step(trace_of(given), step, views, profile)
