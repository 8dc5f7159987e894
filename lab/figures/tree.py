"""Tree: the draft of one step, and what became of each node."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.core.tree import depths
from decodescope.engine.trace import Step, Trace, TraceError
from decodescope.lab.formatting.style import LIGHT, PASSENGER, WORDS
from decodescope.lab.formatting.tokens import visible_token

from .chart import ACCEPT, INK, MUTED, REJECT, chart, escape_label

ROW = 26  # px between two branches
LOOK = {
    "root": dict(symbol="circle", color=INK),
    "accept": dict(symbol="circle", color=ACCEPT),
    "reject": dict(symbol="circle-x-open", color=REJECT),
    "unreached": dict(symbol="circle-open", color=MUTED),
    PASSENGER: dict(symbol="square-open", color=MUTED),
}


def figure(trace: Trace, step: int | None = None) -> go.Figure:
    """Depth across, branches below each other, siblings in draw order; without a step, of the first one with a draft.
    Raises TraceError for a step that the trace does not have, ValueError if it holds no draft."""
    drafted = next((one.step for one in trace.steps if one.draft is not None), None)
    at = drafted if step is None else step
    if at is None:
        raise ValueError(
            "No step of this run holds a draft: take a run of a method that drafts, recorded with decisions."
        )
    if not 0 <= at < len(trace.steps):
        raise TraceError(f"There is no step {at}: the trace has {len(trace.steps)}, counted from 0.")
    record = trace.steps[at]
    draft = record.draft
    if draft is None or not draft.tokens:
        raise ValueError(f"Step {at} holds no draft; the first that does is {drafted}.")
    x, y = [0, *depths(draft.parents)], branch_rows(draft.parents)
    ends = [(parent + 1, node) for node, parent in enumerate(draft.parents, 1)]
    along, across = ([one for a, b in ends for one in (place[a], place[b], None)] for place in (x, y))
    before = [*trace.effective_prompt, *trace.emitted_ids][max(0, record.n - 1)]
    words = [escape_label(visible_token(token, trace.pieces)) for token in (before, *draft.tokens)]
    status = ["root", *_node_statuses(record)]
    marks = [
        go.Scatter(
            x=[x[i] for i in at_status],
            y=[y[i] for i in at_status],
            text=[words[i] for i in at_status],
            textposition="top center",
            mode="markers+text",
            name=WORDS.get(name, name),
            marker=dict(size=9, **LOOK[name]),
            customdata=[i - 1 for i in at_status],
            hovertemplate="node %{customdata}: %{text}<extra></extra>",
        )
        for name in LOOK
        if (at_status := [i for i, one in enumerate(status) if one == name])
    ]
    branch = dict(mode="lines", line=dict(color=LIGHT["branch"]), hoverinfo="skip", showlegend=False)
    edges = go.Scatter(x=along, y=across, **branch)
    drawing = chart(f"The draft of step {at}", "depth", "", edges, *marks, height=170 + ROW * (max(y) + 1))
    return drawing.update_xaxes(dtick=1).update_yaxes(
        range=[max(y) + 0.6, -0.9], showticklabels=False, showgrid=False, ticks=""
    )


def _node_statuses(step: Step) -> list[str]:
    """The status of each node of a step's draft."""
    assert step.draft is not None
    statuses = ["unreached"] * len(step.draft.tokens)
    for node in [] if step.trials is None else step.trials.node:
        statuses[node] = "reject"
    for node in step.path or []:
        statuses[node] = "accept"
    for node in step.draft.passengers or ():
        statuses[node] = PASSENGER
    return statuses


def branch_rows(parents: list[int]) -> list[int]:
    """The branch (row) of the root and of each node: a first child has its parent's row, its siblings get new rows below."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    rows = [0] * (len(parents) + 1)
    free = 0
    waiting = [(-1, False)]
    while waiting:
        node, below = waiting.pop()
        free += below
        rows[node + 1] = free
        waiting += [(child, rank > 0) for rank, child in reversed(list(enumerate(children.get(node, ()))))]
    return rows
