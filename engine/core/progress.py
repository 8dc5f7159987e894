"""Progress: work that takes longer than a second shows its phase, how far it is if that is known, and its time so far.

It is a bar of tqdm, in a terminal on standard error, in a notebook in its cell. It goes away when the work is done, from the
cell's outputs as well: a saved notebook would say there that a widget is missing. Where standard error is no terminal nothing
is shown; DECODESCOPE_PROGRESS=1 shows it there too, =0 nowhere.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, cast

_listener: ContextVar[Callable[[Progress], None] | None] = ContextVar("progress listener", default=None)
SILENT_S = 1.0  # seconds of work that say nothing
SETTING = "DECODESCOPE_PROGRESS"


def in_notebook() -> bool:
    """Whether a kernel runs this."""
    return "ipykernel.zmqshell" in sys.modules


def is_enabled() -> bool:
    """Whether progress is shown here."""
    if (asked := os.environ.get(SETTING)) in ("0", "1"):
        return asked == "1"
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


@contextlib.contextmanager
def report_progress(listener: Callable[[Progress], None]) -> Iterator[None]:
    """Call `listener` with each Progress of this thread at its beginning and after each change, wherever else it is shown."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Progress:
    """The progress of the work inside a `with`.

    phase: the work, in a word or two;  total: how many units there are, None if unknown;  unit: the name of a unit
    done:  how many units are done
    """

    def __init__(self, phase: str, total: float | None = None, unit: str = ""):
        self.done: float
        self.phase = phase
        self.total = total
        self.unit = unit
        self.done = 0
        self._began = time.perf_counter()
        self._bar: Any = None
        self._output: Any = None  # where a notebook shows it
        self._shown = is_enabled()

    def __enter__(self) -> Progress:
        self._report()
        return self

    def _report(self) -> None:
        if (listener := _listener.get()) is not None:
            listener(self)

    def add(self, done: float = 1) -> None:
        """Add this much to what is done."""
        self.at(self.done + done)

    def at(self, done: float, total: float | None = None, phase: str = "") -> None:
        """Set what is done in all; set `total` if it was not known before, and the phase if it is another one."""
        self.done = done
        self.total = self.total if total is None else total
        self.phase = phase or self.phase
        self._report()
        if not self._shown or time.perf_counter() - self._began < SILENT_S:
            return
        if self._bar is None:
            self._bar = self._create_bar()
        self._bar.total, self._bar.n = self.total, round(self.done, 2)
        self._bar.set_description_str(self.phase)  # draws it

    def _create_bar(self) -> Any:
        from tqdm.auto import tqdm

        more: dict[str, Any] = (
            {"display": False} if in_notebook() else {"file": sys.stderr, "dynamic_ncols": True}
        )
        bar = tqdm(total=self.total, desc=self.phase, unit=f" {self.unit}", leave=False, **more)
        bar.start_t -= time.perf_counter() - self._began
        if in_notebook():
            from IPython.display import display

            self._output = display(cast(Any, bar).container, display_id=True)
        return bar

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._bar is not None:
            # a text that ends before its length is whole: no bar is left in a notebook
            self._bar.total = self._bar.n
            self._bar.close()
        if self._output is not None:
            self._output.update({}, raw=True)
