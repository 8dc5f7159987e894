"""Compare: two runs side by side under one cursor, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple

import ipywidgets

from ..engine.trace import Trace
from ..engine.trace.summary import summarise
from .scope import Scope
from .style import percent, size
from .tokens import shown_id

VIEWS = ("tree", "text", "time")


class Difference(NamedTuple):
    """One row of the table: what, in A, in B, and B as a ratio of A where that means something."""

    what: str
    a: str
    b: str
    ratio: str = ""


class Comparison(ipywidgets.VBox):
    """Two scopes, A left and B right, and a table of differences. Moving one cursor moves the other to the step that
    wrote the same token."""

    def __init__(self, a: Trace, b: Trace, views: Sequence[str] = VIEWS):
        self.rows = differences(a, b)
        self.scopes = Scope(a, views), Scope(b, views)
        wide = ipywidgets.Layout(width="50%", min_width="380px", padding="12px 16px 0 0")
        columns = [
            ipywidgets.VBox([_label(f"{letter}: {_named(trace)}", strong=True), scope], layout=wide)
            for letter, trace, scope in zip("AB", (a, b), self.scopes, strict=True)
        ]
        super().__init__([_grid(self.rows), ipywidgets.HBox(columns)])
        self._moving = False
        for one, other, there in ((0, 1, _partners(a, b)), (1, 0, _partners(b, a))):
            self.scopes[one].observe(self._mover(self.scopes[other], there), "step")

    def __str__(self) -> str:
        table = [("", "A", "B", "B / A"), *self.rows]
        wide = [max(len(row[k]) for row in table) for k in range(4)]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip() for row in table)

    def _mover(self, scope: Scope, there: list[int]) -> Any:
        def move(change: Any) -> None:
            if self._moving or not there or change["new"] < 0:
                return
            self._moving = True
            try:
                scope.step = there[min(change["new"], len(there) - 1)]
            finally:
                self._moving = False

        return move


def compare(a: Trace, b: Trace, views: Sequence[str] = VIEWS) -> Comparison:
    """Show two traces side by side; A is what B is measured against."""
    return Comparison(a, b, views)


def differences(a: Trace, b: Trace) -> list[Difference]:
    """Settings that differ, then figures, then where the texts part. Settings that are equal are left out."""
    left, right = dict(_settings(a)), dict(_settings(b))
    names = list(dict.fromkeys([*left, *right]))
    rows = [Difference(x, left.get(x, "–"), right.get(x, "–")) for x in names if left.get(x) != right.get(x)]
    return [*rows, *_figures(a, b), _texts(a, b)]


def _settings(trace: Trace) -> Iterator[tuple[str, str]]:
    h = trace.header
    yield "model", _model(h.model)
    for role, spec in h.lanes.items():
        yield f"{role} model", _model(spec)
    for kind, part in h.method.items():
        stages = part.get("stages") or [part]
        yield kind, " + ".join(str(stage.get("name")) for stage in stages)
        for stage in stages:
            yield from ((f"{stage.get('name')}.{k}", str(v)) for k, v in stage.items() if k not in ("name", "stages"))
    yield "prompt", f"{len(h.prompt)} tokens: {' '.join(shown_id(int(x), trace.pieces, 12) for x in h.prompt[-6:])}"
    yield "seed", str(h.seed)
    yield "type, device", f"{h.dtype} on {h.device}, {h.threads} threads"
    yield "new tokens, at most", str(h.max_new_tokens)
    yield "recorded", h.levels[-1]


def _figures(a: Trace, b: Trace) -> list[Difference]:
    x, y = summarise(a), summarise(b)

    def row(what: str, one: float, two: float, form: str) -> Difference:
        return Difference(what, f"{one:{form}}", f"{two:{form}}", f"× {two / one:.2f}" if one else "")

    share = [percent(s.acceptance) if s.acceptance is not None else "no trials" for s in (x, y)]
    ratio = f"× {y.kv_bytes_held / x.kv_bytes_held:.2f}" if x.kv_bytes_held else ""
    return [
        row("tokens", x.tokens, y.tokens, "d"),
        row("target passes", x.target_passes, y.target_passes, "d"),
        row("tokens per target pass (tau)", x.tau, y.tau, ".2f"),
        Difference("trials accepted", *share),
        row("tokens/s, this machine", x.tokens_per_s, y.tokens_per_s, ".1f"),
        Difference("KV cache at the end", size(x.kv_bytes_held), size(y.kv_bytes_held), ratio),
        Difference("keeps the target's law", "yes" if x.lossless else "no", "yes" if y.lossless else "no"),
    ]


def _texts(a: Trace, b: Trace) -> Difference:
    """The first token in which the texts differ, the prompt left out."""
    one, two = a.tokens[len(a.header.prompt) :], b.tokens[len(b.header.prompt) :]
    for i, (x, y) in enumerate(zip_longest(one, two)):
        if x != y:
            told = ["the text ends" if t is None else shown_id(t, trace.pieces) for t, trace in ((x, a), (y, b))]
            return Difference(f"first difference, token {i}", *told)
    return Difference("first difference", "none", f"the {len(one)} tokens are equal")


def _partners(a: Trace, b: Trace) -> list[int]:
    """Per step of `a`, the step of `b` that wrote the same last token, by its place in the text."""
    ends = list(accumulate(len(s.emitted) for s in b.steps))
    made, at = [], 0
    for written in accumulate(len(s.emitted) for s in a.steps):
        while at < len(ends) - 1 and ends[at] < written:
            at += 1
        made.append(at)
    return made if ends else []


def _model(spec: dict[str, Any]) -> str:
    return f"{spec.get('name', '?')} ({str(spec.get('fingerprint', '?'))[:8]})"


def _named(trace: Trace) -> str:
    usual = {"draft_verify", "none", "lossless", "keep_all", "all_layers"}
    parts = [str(part.get("name")) for part in trace.header.method.values()]
    return " + ".join(part.replace("_", " ") for part in parts if part not in usual) or "plain decoding"


def _label(text: str, strong: bool = False) -> ipywidgets.Label:
    """Text as text: a Label reads no markup."""
    style = {"font_weight": "600"} if strong else {}
    return ipywidgets.Label(text, style=style, layout=ipywidgets.Layout(margin="0", height="22px"))


def _grid(rows: list[Difference]) -> ipywidgets.GridBox:
    cells = [_label(x, strong=True) for x in ("", "A", "B", "B / A")]
    for row in rows:
        cells += [_label(cell) for cell in row]
    columns = "minmax(160px, auto) minmax(120px, 1fr) minmax(120px, 1fr) 80px"
    return ipywidgets.GridBox(cells, layout=ipywidgets.Layout(grid_template_columns=columns, grid_gap="0 24px"))
