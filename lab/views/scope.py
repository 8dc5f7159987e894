"""Scope: the step-by-step view of a run as a notebook widget, drawn by the same module as the page."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

import anywidget
import numpy as np
import traitlets

from decodescope.engine.core.arguments import check_whole_number
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.trace import End, Header, Prefill, Record, Step, Trace
from decodescope.lab.decision.explain import Explanation, explain
from decodescope.lab.wire.messages import max_node_number, messages
from decodescope.lab.wire.trees import max_tree_node_number
from decodescope.lab.wire.wire import Wire, encode, end_message, trace_node

from .bundle import SINGLE, WEB, bundle, needed_parts
from .export import SandboxFrame, export_html

VIEWS = ("strip", "tree", "card", "text", "notes", "time")
EVERY = 0.1  # minimum seconds between two messages to the browser
MOST = 50_000  # bytes of one message: with EVERY at most 500 kB a second


class Scope(anywidget.AnyWidget):
    """Shows a trace, or a live run.

    step: number of the displayed step, as a trait: set it, or observe it;  node: the selected node of that step, None: none;
    selection: {"step", "node"}, a click in the tree, of any step. Nodes are numbered with the root as 0; `explain()` explains
    the selected one.
    trace: the displayed trace, once it is complete;  profile: of the machine that ran it: then there is a roofline
    """

    @classmethod
    def at_step(
        cls,
        trace: Trace,
        step: int | None = None,
        views: Sequence[str] = VIEWS,
        profile: HardwareProfile | None = None,
    ) -> Self:
        """A trace at a step, counted from the end if negative; None: its last one. Raises ParamError if it lacks that step."""
        scope = cls(trace, views, profile)
        if step is not None:
            count = len(trace.steps)
            scope.step = range(count)[check_whole_number(step, "step", -count, count - 1)]
        return scope

    _esm: Any = property(lambda self: bundle(self._parts))  # read once, when the widget is made
    _css = WEB / "styles/scope.css"
    views = traitlets.List(traitlets.Unicode(), default_value=list(VIEWS)).tag(sync=True)
    # a finished trace, set once: a reopened notebook draws from it
    messages: Any = traitlets.List([]).tag(sync=True)
    step = traitlets.Int(-1).tag(sync=True)
    node = traitlets.Int(None, allow_none=True).tag(sync=True)
    selection = traitlets.Dict(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        trace: Trace | None = None,
        views: Sequence[str] = VIEWS,
        profile: HardwareProfile | None = None,
        **traits: Any,
    ):
        roofed = [] if profile is None or "roof" in views else ["roof"]
        sent = None if trace is None else list(messages(trace, profile=profile))
        # the needs of a future run are unknown
        self._parts = SINGLE if sent is None else needed_parts(sent)
        self._parts |= {"model"} & {*views}  # its pane exists for an unchanged model, too
        super().__init__(views=[*views, *roofed], **traits)
        self.profile = profile
        self.trace: Trace | None = None
        self._growing: Trace | None = None
        self._wire: Wire | None = None
        self._waiting: deque[dict[str, Any] | Step] = deque()
        self._sent, self._planned = 0.0, False
        self.on_msg(self._answer_request)
        if trace is not None and sent is not None:
            self._put(trace, sent)

    def show(self, trace: Trace) -> Scope:
        """Show a trace, finished or as far as it is; it replaces what was streamed before."""
        return self._put(trace, list(messages(trace, profile=self.profile)))

    def _put(self, trace: Trace, sent: list[dict[str, Any]]) -> Scope:
        self._waiting.clear()
        self.trace = trace
        self._growing = self._wire = None
        self._add_parts(needed_parts(sent))
        self.messages = sent
        return self

    def _add_parts(self, parts: frozenset[str]) -> None:
        """Add these parts of the drawing module; a view that lacks one is drawn again."""
        if not parts <= self._parts:
            self._parts |= parts
            self._esm = bundle(self._parts)

    # ---- a live run: the methods of a trace's sink, and `push` for run(..., on_step=scope.push)

    def write(self, record: Record) -> None:
        """Take the next record of a run; the first one is its header."""
        if isinstance(record, Header):
            self._begin(record)
        elif isinstance(record, End):
            self.seal(record)
        else:
            self._take(record)

    def seal(self, end: End | None) -> None:
        """The run is over: send the waiting messages, and store the whole in the notebook."""
        if self._growing is not None:
            self._growing.seal(end)
            if self._growing.end is not None:
                self._waiting.append(end_message(self._growing.end))
            self.flush()
            self.show(self._growing)

    def push(self, step: Step) -> None:
        """Show one more step: `run(..., on_step=scope.push)`.
        Such a run sends no header; `show(run.trace)` afterwards adds what is missing."""
        if self._wire is None or step.step == 0:
            self._begin(_UNTOLD)
        self._take(step)

    def watch(self, session: Any) -> Scope:
        """Run a Session to its end and show every step when it is made; an existing sink still gets everything."""
        session.sink = self if session.sink is None else _TeeSink(session.sink, self)
        for _ in session.stream():
            pass
        return self

    def flush(self) -> None:
        """Send the waiting messages now."""
        while self._waiting:
            self._dispatch()

    def _begin(self, header: Header) -> None:
        self._waiting.clear()
        self._add_parts(SINGLE)
        self.trace = None
        self._growing = Trace([header])
        self._wire = Wire(header, self.profile)
        self.messages = []
        self.send({"kind": "clear"})
        if header is not _UNTOLD:
            self._waiting.append(self._wire.head())

    def _take(self, record: Prefill | Step) -> None:
        assert self._wire is not None and self._growing is not None, "the header comes first"
        self._growing.write(record)
        self._wire.learn(record)
        if isinstance(record, Step):
            self._waiting.append(record)
            self._schedule_send()
        elif self._waiting:  # the head, which waits for the first step, describes the prefill
            self._waiting[0] = self._wire.head()

    def _schedule_send(self) -> None:
        """Send now if the last message is long enough ago; else when the kernel has time, with all that has come by then."""
        wait = self._sent + EVERY - time.monotonic()
        if wait <= 0:
            self._dispatch()
        elif not self._planned and (loop := _event_loop()) is not None:
            self._planned = True
            loop.call_later(wait, self._send_late)

    def _send_late(self) -> None:
        self._planned = False
        if self._waiting:
            self._schedule_send()

    def _dispatch(self) -> None:
        """One message with the waiting steps: the newest ones with their trees, as many as fit, the older ones without."""
        if not self._waiting:
            return
        batch, size = deque[dict[str, Any]](), 0
        ready = list(self._waiting)
        self._waiting.clear()
        for item in reversed(ready):
            message = self._build_message(item, size < MOST // 2)
            size += len(encode(message))
            batch.appendleft(message)
        while size > MOST and len(batch) > 1:  # the rest goes with the next message
            late = batch.pop()
            size -= len(encode(late))
            self._waiting.appendleft(late)
        self._sent = time.monotonic()
        self.send({"kind": "batch", "messages": list(batch)})

    def _build_message(self, item: dict[str, Any] | Step, tree: bool) -> dict[str, Any]:
        if isinstance(item, dict):
            return item
        assert self._wire is not None
        return self._wire.step(item) if tree else self._wire.brief(item)

    def _answer_request(self, _: Any, content: dict[str, Any], buffers: Any) -> None:
        """Answer the view, which lacks steps or shows one without its tree."""
        if not isinstance(content, dict) or content.get("kind") != "gap":
            return
        trace = self._growing or self.trace
        if trace is None:
            return
        wire = self._wire
        if wire is None:
            from decodescope.lab.wire.messages import build_wire

            wire = self._wire = build_wire(trace, profile=self.profile)
        first = max(0, int(content.get("from", 0)))
        last = min(int(content.get("to", 0)), len(trace.steps), wire.count)
        self._waiting.extend(
            wire.step(step, whole=True) for step in trace.steps[first : min(last, first + 64)]
        )
        self._schedule_send()

    # ---- the selected node, by itself and as a part of the selection

    @traitlets.validate("node")
    def _validate_node(self, proposal: Any) -> int | None:
        """A node of the displayed step, if the step is known."""
        node: int | None = proposal["value"]
        trace = self.trace or self._growing
        if node is None or trace is None or not trace.steps:
            return node
        record = trace.steps[self.step]
        last = max(max_node_number(record), max_tree_node_number(trace.header, record))
        if not 0 <= node <= last:
            raise traitlets.TraitError(
                f"node = {node}: the step that is shown has nodes 0 (the root) to {last}."
            )
        return int(node)

    @traitlets.observe("node")
    def _select_node(self, change: Any) -> None:
        """A node was set: it becomes the selection."""
        if change["new"] is not None:
            self.selection = {"step": self._shown_step(), "node": change["new"]}
        elif (self.selection or {}).get("step") == self._shown_step():
            self.set_trait("selection", None)

    @traitlets.observe("selection", "step")
    def _follow_selection(self, change: Any) -> None:
        """A node was clicked, or another step is shown."""
        chosen = self.selection or {}
        self.node = chosen.get("node") if chosen.get("step") == self._shown_step() else None

    def _shown_step(self) -> int:
        """The displayed step; the newest while none was chosen."""
        trace = self.trace or self._growing
        return self.step if self.step >= 0 or trace is None else len(trace.steps) - 1

    # ---- actions on the displayed run

    def explain(self) -> Explanation:
        """The selected decision, or the target's own token of the displayed step."""
        trace = self.trace or self._growing
        if trace is None:
            raise ValueError("Nothing is shown yet: show a trace, or stream a run into the scope.")
        chosen = self.selection
        if not chosen:
            return explain(trace, max(0, self.step))
        step = trace.steps[chosen["step"]]
        return explain(trace, step.step, trace_node(step, chosen["node"]))

    def freeze(self, height: int = 640) -> SandboxFrame:
        """The same picture without a kernel: a sandboxed frame that holds everything. Survives any conversion."""
        trace = self.trace or self._growing
        if trace is None:
            raise ValueError("Nothing is shown yet: show a trace, or stream a run into the scope.")
        return SandboxFrame(
            export_html(trace, views=tuple(self.views), step=max(0, self.step), profile=self.profile), height
        )


class _TeeSink:
    """A sink that passes records to two others, first to the original one."""

    def __init__(self, first: Any, second: Scope):
        self.first, self.second = first, second

    def write(self, record: Record) -> None:
        self.first.write(record)
        self.second.write(record)

    def seal(self, end: End) -> None:
        self.first.seal(end)
        self.second.seal(end)


# The header of a run that sends its steps without one: it is empty, and the first step follows some text.
_UNTOLD = Header({}, {}, np.array([-1], "<i4"), 0, pieces={"-1": "…"})


def _event_loop() -> Any:
    """The kernel's event loop, if we are inside it."""
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
