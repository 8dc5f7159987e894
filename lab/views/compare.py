"""Compare: two runs side by side under one scrubber, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import anywidget
import traitlets

from decodescope.engine.trace import Trace
from decodescope.engine.trace.file.named_trace import trace_of
from decodescope.engine.trace.query.comparability import exactness_mark_text
from decodescope.engine.trace.query.summary import summarise
from decodescope.lab.formatting.style import format_bytes, format_percent
from decodescope.lab.formatting.tokens import visible_token
from decodescope.lab.wire.messages import build_wire, messages
from decodescope.lab.wire.wire import Wire

from .bundle import WEB, bundle, needed_parts

VIEWS = ("tree", "text")


class Difference(NamedTuple):
    """One row of the table: its name, in A, in B, and B as a ratio of A where that makes sense."""

    what: str
    a: str
    b: str
    ratio: str = ""


class Comparison(anywidget.AnyWidget):
    """Two traces side by side, A left and B right, under one scrubber; `print` gives the table of differences.

    token: the place that is shown, as a trait, counted from 1: each run shows the step that wrote it
    align: "token", or "clock": each run shows the step in progress at the same time
    steps: [step of A, step of B] that are shown, as the view reports them;  rows: the differences
    """

    _esm = property(lambda self: bundle(self._parts))  # read once, when the widget is made
    _css = WEB / "styles/scope.css"
    runs: Any = traitlets.List([]).tag(sync=True)  # the messages of both: a reopened notebook draws from them
    views = traitlets.List(traitlets.Unicode(), default_value=list(VIEWS)).tag(sync=True)
    token = traitlets.Int(1).tag(sync=True)
    align = traitlets.Enum(("token", "clock"), default_value="token").tag(sync=True)
    steps: Any = traitlets.List([]).tag(sync=True)

    def __init__(self, a: Trace, b: Trace, views: Sequence[str] = VIEWS):
        self.traces, self.rows = (a, b), differences(a, b)
        self._wires: dict[int, Wire] = {}
        runs = [list(messages(a)), list(messages(b))]
        self._parts = needed_parts(one for sent in runs for one in sent) | {"pair"}
        super().__init__(views=list(views), runs=runs)
        self.on_msg(self._answer_request)

    def __str__(self) -> str:
        table = [("", "A", "B", "B / A"), *self.rows]
        wide = [max(len(row[k]) for row in table) for k in range(4)]
        return "\n".join(
            "  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip() for row in table
        )

    def _answer_request(self, _: Any, content: dict[str, Any], buffers: Any) -> None:
        """Answer the view, which shows a step without its tree."""
        if (
            not isinstance(content, dict)
            or content.get("kind") != "gap"
            or content.get("which") not in (0, 1)
        ):
            return
        which = int(content["which"])
        trace = self.traces[which]
        wire = self._wires.setdefault(which, build_wire(trace))
        first, last = max(0, int(content.get("from", 0))), min(int(content.get("to", 0)), len(trace.steps))
        steps = trace.steps[first : min(last, first + 16)]
        self.send({"which": which, "messages": [wire.step(step, whole=True) for step in steps]})


def compare(a: Any, b: Any, views: Sequence[str] = VIEWS) -> Comparison:
    """Show two runs side by side; A is the baseline of B. Each is a trace, the result of `run`, or a path.
    Raises TraceError for anything else."""
    return Comparison(trace_of(a), trace_of(b), views)


def differences(a: Trace, b: Trace) -> list[Difference]:
    """Settings that differ, then figures, then where the texts part.
    Equal settings are left out, and so are those that only one of them has."""
    left, right = dict(_setting_pairs(a)), dict(_setting_pairs(b))
    rows = [Difference(x, left[x], right[x]) for x in left if x in right and left[x] != right[x]]
    return [*rows, *_figure_differences(a, b), _text_difference(a, b)]


def _setting_pairs(trace: Trace) -> Iterator[tuple[str, str]]:
    h = trace.header
    yield "model", _model_text(h.model)
    for role, spec in h.lanes.items():
        yield f"{role} model", _model_text(spec)
    for kind, part in h.method.items():
        stages = part.get("stages") or [part]
        yield kind, " + ".join(str(stage.get("name")) for stage in stages)
        for stage in stages:
            yield from (
                (f"{stage.get('name')}.{k}", str(v)) for k, v in stage.items() if k not in ("name", "stages")
            )
    yield (
        "prompt",
        f"{len(h.prompt)} tokens: {' '.join(visible_token(int(x), trace.pieces, 12) for x in h.prompt[-6:])}",
    )
    yield "seed", str(h.seed)
    yield "type and device", h.device_text
    yield "new tokens at most", str(h.max_new_tokens)
    yield "recorded", h.levels[-1]
    fork = h.fork or {}
    name = f": {fork['name']}" if fork.get("name") else ""
    yield "fork", f"of run {str(fork.get('of'))[:8]} from step {fork.get('step')}{name}" if fork else "none"


def _figure_differences(a: Trace, b: Trace) -> list[Difference]:
    x, y = summarise(a), summarise(b)

    def row(what: str, one: float, two: float, form: str) -> Difference:
        return Difference(what, f"{one:{form}}", f"{two:{form}}", f"× {two / one:.2f}" if one else "")

    share = [format_percent(s.acceptance) for s in (x, y) if s.acceptance is not None]
    ratio = f"× {y.kv_bytes_held / x.kv_bytes_held:.2f}" if x.kv_bytes_held else ""
    return [
        row("tokens", x.tokens, y.tokens, "d"),
        row("target passes", x.target_passes, y.target_passes, "d"),
        row("tokens per target pass (tau)", x.tau, y.tau, ".2f"),
        *([Difference("trials accepted", *share)] if len(share) == 2 else []),
        row("tokens/s, this machine", x.tokens_per_s, y.tokens_per_s, ".1f"),
        Difference(
            "KV cache at the end", format_bytes(x.kv_bytes_held), format_bytes(y.kv_bytes_held), ratio
        ),
        Difference("text", exactness_mark_text(a.header), exactness_mark_text(b.header)),
    ]


def _text_difference(a: Trace, b: Trace) -> Difference:
    """The first token in which the texts differ, the prompt left out."""
    one, two = a.tokens[len(a.header.prompt) :], b.tokens[len(b.header.prompt) :]
    for i, (x, y) in enumerate(zip_longest(one, two)):
        if x != y:
            shown = [
                "the text ends" if t is None else visible_token(t, trace.pieces)
                for t, trace in ((x, a), (y, b))
            ]
            return Difference(f"first difference, token {i}", *shown)
    return Difference("first difference", "none", f"the {len(one)} tokens are equal")


def _model_text(spec: dict[str, Any]) -> str:
    return f"{spec.get('name', '?')} ({str(spec.get('fingerprint', '?'))[:8]})"
