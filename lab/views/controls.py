"""Controls: the knobs of a method as widgets. Moving one runs again, and the picture follows."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import ipywidgets

from decodescope.engine.core.component import lookup
from decodescope.engine.core.params import Param, ParamError
from decodescope.engine.core.refusal import Refusal

from .compare import Comparison
from .run_widget import LiveRun, RunWidget
from .scope import VIEWS

PATIENCE = 0.4  # seconds without a further move until a knob's move counts
SLIDERS = 256  # whole numbers with more values than these get a text box
_WIDE = {"description_width": "150px"}
_LAYOUT = ipywidgets.Layout(width="440px")


class Knob(NamedTuple):
    """One knob of a method: its part's kind, the stage if the part is a chain of several, its declaration, and its value."""

    kind: str
    stage: int | None
    param: Param
    value: Any

    def put(self, record: dict[str, Any], value: Any) -> None:
        """Set it in a method's record."""
        part = record[self.kind] if self.stage is None else record[self.kind]["stages"][self.stage]
        part[self.param.name] = value


def knobs(method: Any) -> Iterator[Knob]:
    """The knobs of all parts of a method, in the order of its parts."""
    for kind, part in method.record().items():
        stages = part.get("stages")
        for number, one in enumerate(stages or [part]):
            for param in lookup(kind, one["name"]).params():
                yield Knob(kind, number if stages else None, param, one[param.name])


class KnobPanel(ipywidgets.VBox):
    """The knobs of a method. `method` is the one that they represent; `moved` is called with each new one, once they rest."""

    def __init__(self, method: Any, moved: Callable[[Any], None]):
        self.method, self._moved = method, moved
        self._record = copy.deepcopy(method.record())
        self._timer: threading.Timer | None = None
        self._line = ipywidgets.Label()
        rows = []
        self.knobs: dict[str, ipywidgets.ValueWidget] = {}
        for knob in knobs(method):
            widget = knob_widget(knob)
            widget.observe(lambda change, knob=knob: self._on_knob_moved(knob, change["new"]), "value")
            self.knobs[f"{knob.kind}.{knob.param.name}"] = widget
            rows.append(widget)
        nothing = [ipywidgets.Label("This method has no knobs.")] if not rows else []
        super().__init__([*rows, *nothing, self._line])

    def _on_knob_moved(self, knob: Knob, value: Any) -> None:
        """A knob was moved: wait for another move, then run."""
        try:
            value = knob.param.read(value, knob.kind) if isinstance(value, str) else value
        except ParamError as error:
            self._line.value = str(error)
            return
        knob.put(self._record, knob.param.record(value))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(PATIENCE, self._apply_knobs)
        self._timer.daemon = True
        self._timer.start()

    def _apply_knobs(self) -> None:
        """The knobs rest: build their method and pass it on. Incompatible values are reported in a line."""
        try:
            method = type(self.method).from_record(copy.deepcopy(self._record))
            self._moved(method)
        except Refusal as error:
            self._line.value = str(error)
            return
        self.method, self._line.value = method, ""


class RunControls(ipywidgets.VBox):
    """The knobs of one run or two, and their pictures.
    A run is started again when one of its knobs was moved; the run before is stopped. Two runs are also compared when both are
    over.

    runs: those that are shown;  watched: their pictures;  panels: their knobs;  comparison: of two finished runs, else None
    """

    def __init__(self, *runs: LiveRun, views: Sequence[str] = VIEWS):
        if not 1 <= len(runs) <= 2:
            raise ParamError(f"controls takes one run or two, not {len(runs)}: give what `start` returned.")
        odd = next((run for run in runs if not isinstance(run, LiveRun)), None)
        if odd is not None:
            raise ParamError(
                f"controls takes a run in the background, not a {type(odd).__name__}: give what `start` returned."
            )
        self.comparison: Comparison | None = None
        self._changing = threading.Lock()  # a knob's timer and a waiting caller are two threads
        self.watched = [RunWidget(run, views if len(runs) == 1 else ("strip",)) for run in runs]
        self.panels = [KnobPanel(run.method, partial(self._rerun, i)) for i, run in enumerate(runs)]
        self._below = ipywidgets.VBox()
        beside = ipywidgets.Layout(flex_flow="row wrap")
        sides = [
            ipywidgets.VBox([panel, view]) for panel, view in zip(self.panels, self.watched, strict=True)
        ]
        super().__init__([ipywidgets.HBox(sides, layout=beside) if len(runs) == 2 else sides[0], self._below])
        self._compare_when_done()

    @property
    def runs(self) -> list[LiveRun]:
        """The runs that are shown."""
        return [view.running for view in self.watched]

    def wait(self, timeout: float | None = None) -> RunControls:
        """Wait until all runs are over and shown, at most `timeout` s for each."""
        with self._changing:
            comparing = self._comparing
        for view in self.watched:
            view.wait(timeout)
        if comparing is not None:
            comparing.join(timeout)
        return self

    def _rerun(self, which: int, method: Any) -> None:
        """Run once more with this method; the run before ends."""
        with self._changing:
            view = self.watched[which]
            before, after = view.running, view.running.rerun(method)
            before.stop()
            view.follow(after)
            self._compare_when_done()

    def _compare_when_done(self) -> None:
        """Compare the two runs once both are over."""
        self._comparing: threading.Thread | None = None
        if len(self.watched) == 2:
            runs = self.runs
            self._comparing = threading.Thread(
                target=self._show_comparison, args=(runs,), name="decodescope-controls", daemon=True
            )
            self._comparing.start()

    def _show_comparison(self, runs: list[LiveRun]) -> None:
        for view in self.watched:
            view.wait()
        if self.runs == runs and all(run.trace.end is not None for run in runs):
            self.comparison = Comparison(runs[0].trace, runs[1].trace)
            self._below.children = [self.comparison]


def knob_widget(knob: Knob) -> ipywidgets.ValueWidget:
    """The widget of a knob: a slider if its values are few, a choice, a check box, or a line of text."""
    param = knob.param
    says_unit = not param.unit or param.name.endswith(param.unit)
    name = param.name if says_unit else f"{param.name}, {param.unit}"
    look: dict[str, Any] = dict(description=name, tooltip=param.help or name, layout=_LAYOUT, style=_WIDE)
    if param.choices:
        return ipywidgets.Dropdown(options=list(param.choices), value=knob.value, **look)
    if param.type is bool:
        return ipywidgets.Checkbox(value=knob.value, **look)
    if param.type in (int, float) and param.low is not None and param.high is not None and not param.auto:
        bounds = dict(min=param.low, max=param.high, value=knob.value)
        if param.type is int:
            few = param.high - param.low <= SLIDERS
            return (ipywidgets.IntSlider if few else ipywidgets.BoundedIntText)(
                **bounds, continuous_update=False, **look
            )
        step = param.step or (param.high - param.low) / 100
        return ipywidgets.FloatSlider(**bounds, step=step, continuous_update=False, **look)
    return ipywidgets.Text(value=param.spell(knob.value), continuous_update=False, **look)


def controls(*runs: LiveRun, views: Sequence[str] = VIEWS) -> RunControls:
    """The knobs of a run as widgets above its picture: `controls(start("lab", "prompt_lookup", text))`.
    Moving one ends the run and starts it again. With two runs each has its knobs, and their results are compared. Raises
    ParamError for anything but a background run."""
    return RunControls(*runs, views=views)
