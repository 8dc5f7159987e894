"""Notebook report: a report as a notebook shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from decodescope.engine.core.arguments import check_whole_number
from decodescope.engine.cost.hardware import device
from decodescope.engine.trace import Trace
from decodescope.engine.trace.file.named_trace import trace_of
from decodescope.lab.views.export import SandboxFrame

from .deployed_clock import Deployment
from .page import page
from .report import AcceptanceReport
from .report import count_report as counted

HIGH = 900  # px of its frame


class NotebookReport(AcceptanceReport):
    """A report that a notebook shows as its page, and whose steps it opens."""

    traces: Sequence[Trace] = ()  # those that were counted, in order

    def show(self, run: int, step: int) -> Any:
        """A run at one of its steps, numbered as the tables have them: runs from 1, steps from 0.

        Raises ParamError for a run or a step that is not there.
        """
        # here, since it needs the packages of notebooks, and a report does not
        from decodescope.lab.views.scope import Scope

        trace = self.traces[check_whole_number(run, "run", 1, len(self.traces)) - 1]
        return Scope.at_step(trace, step)

    def _repr_html_(self) -> str:
        # inside a frame a link to a place in the page leads to the notebook's own address, unless the base says otherwise
        framed = page(self).replace("<head>", '<head><base href="about:srcdoc">', 1)
        return SandboxFrame(framed, HIGH)._repr_html_()


def report(given: Any, machine: str | None = None, sequences: int = 1) -> NotebookReport:
    """Where the drafts of these runs were rejected, and what to try next: one or several traces, runs, or paths.

    machine, sequences: price the advice for a machine of the list (`engine.cost.hardware.DEVICES`) that decodes so many texts
    at a time; None: for the machine of the runs

    Raises ParamError for a machine that is not in the list.
    Raises TraceError if they were not made by one method on one model, do not hold decisions, or hold no draft."""
    several = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
    deployment = None if machine is None else Deployment(device(machine), sequences)
    traces = [trace_of(x) for x in given] if several else [trace_of(given)]
    shown = NotebookReport(**vars(counted(traces, deployment)))
    shown.traces = traces
    return shown
