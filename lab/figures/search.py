"""Search: the tree of a search as it grew: nodes that were begun, kept and left, each with its score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import plotly.graph_objects as go

from decodescope.engine.core.arguments import check_whole_number
from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.detail_checks.tree_search import SearchReplay, node_outcomes, replay_rounds
from decodescope.engine.trace.detail_checks.trees import declared_trees, tree_reading
from decodescope.engine.trace.details.declarations import Sentence, TreeForm
from decodescope.engine.trace.details.scope import FormulaScope
from decodescope.engine.trace.details.shapes import TreeDetail
from decodescope.engine.trace.details.tree import TreeReading
from decodescope.lab.formatting.style import LIGHT
from decodescope.lab.formatting.tokens import visible_token

from .chart import ACCEPT, INK, MUTED, chart, escape_label
from .tree import ROW, branch_rows

LABELS = 100  # up to so many nodes, each is labelled with its token; above it only those of the best text
LOOK = {
    "open": ("goes on", dict(symbol="circle", color=INK)),
    "best": ("the best", dict(symbol="star", color=ACCEPT)),
    "closed": ("closed", dict(symbol="circle-open", color=MUTED)),
    "left": ("left", dict(symbol="x-thin-open", color=MUTED)),
}


@dataclass
class DrawnSearchNode:
    """A node of a drawn tree. parent: -1 after the text;  kind: of LOOK;  says: its notes;  over: its text ended"""

    token: int
    parent: int
    depth: int
    kind: str
    says: str
    over: bool = False


def figure(trace: Trace, step: int | None = None, node: int | None = None) -> go.Figure:
    """The tree of a search.
    Of a tree that grew within a step: its first `node` nodes, each with the terms by which it was chosen. Of one that grows
    over steps: the nodes up to step `step`, and those that were left. Without either, all of it. Raises ValueError if no
    step has a tree, ParamError for a place that does not exist."""
    held = [(one, *own) for one in trace.steps for own in declared_trees(trace.header, one)]
    grown = next((own for own in held if own[2].growth is not None), None)
    if grown is not None:
        return _growth_figure(trace, *grown, node)
    over = [own for own in held if own[1].earlier]
    if not over:
        raise ValueError(
            "No step of this run records a search: take a run with the strategy planned, beam or diverse_beam."
        )
    last = check_whole_number(len(over) - 1 if step is None else step, "step", 0, len(over) - 1)
    nodes = list(_nodes_by_step(trace, over[: last + 1], last + 1 == len(over)))
    left = sum(one.kind == "left" for one in nodes)
    nouns = over[0][2].nouns.capitalize()
    kept = sum(one.kind != "left" and not one.over for one in nodes)
    return _tree_figure(trace, nodes, f"{nouns} up to step {last}: {kept} kept, {left} left", "tokens")


def _growth_figure(
    trace: Trace, step: Step, detail: TreeDetail, form: TreeForm, count: int | None
) -> go.Figure:
    """The tree after `count` rounds."""
    reading = tree_reading(trace.header, step, detail, form)
    growth = form.growth
    assert growth is not None
    upto = check_whole_number(len(reading) - 1 if count is None else count, "node", 1, len(reading) - 1)
    terms = [""]
    for born, (again, scores) in enumerate(replay_rounds(reading, upto), 1):
        if born > upto:
            break
        parent, token = detail.parents[born], reading.token(born)
        place = again.candidates[parent].index(token) if token in again.candidates[parent] else -1
        own = {"score": scores[place], "p": again.priors[parent][place]} if place >= 0 else {}
        chosen = FormulaScope({**reading.knobs, **own}, {}).say(Sentence(growth.chosen))
        worth = reading.node_scope(born).say_first(form.worth)
        terms.append("; ".join(filter(None, (f"{form.noun} {born}: {worth}", chosen))))
    numbers = [reading.number(k) or 0.0 for k in range(1, upto + 1)]
    best = numbers.index(max(numbers)) + 1
    way, words = {*reading.path(best)}, node_outcomes(reading, again)
    state_of = {True: "closed", False: "open"}
    nodes = [
        DrawnSearchNode(
            reading.token(k) or 0,
            detail.parents[k] - 1,
            len(reading.path(k)),
            "best" if k in way else state_of[again.closed[k]],
            terms[k] + _node_status(reading, again, k, words[k]),
        )
        for k in range(1, upto + 1)
    ]
    title = FormulaScope({"upto": upto, "best": max(numbers)}, {}).say(Sentence(growth.title))
    return _tree_figure(trace, nodes, title or f"{form.title} behind {upto} {form.nouns}", "tokens")


def _node_status(reading: TreeReading, again: SearchReplay, node: int, word: str) -> str:
    """The outcome of a node."""
    growth = reading.form.growth
    assert growth is not None
    own = {growth.visits: again.visits[node], growth.values: again.values[node]}
    said = FormulaScope(own, {}).say(Sentence(growth.now)) or ""
    outcome = reading.form.outcomes.get(word)
    shut = reading.node_scope(node).say_all(outcome.words) if outcome is not None else []
    return "<br>" + "; ".join(filter(None, (said, *shut)))


Held = tuple[Step, TreeDetail, TreeForm]


def _nodes_by_step(trace: Trace, held: list[Held], over: bool) -> Iterator[DrawnSearchNode]:
    """The nodes of all steps, each after the node that it continues, and those left in each step.
    over: the last step is the run's last"""
    own = _written_path(held) if over else set()
    before, count = [-1], 0
    for depth, (step, detail, form) in enumerate(held, 1):
        reading = tree_reading(trace.header, step, detail, form)
        numbers = [reading.number(node) or 0.0 for node in range(len(reading))]
        kept = reading.nodes_by_fate("open")
        worst = min((numbers[node] for node in kept), default=0.0)
        now = []
        for node, outcome in enumerate(reading.outcomes):
            if not outcome.shown:
                continue
            worth = reading.node_scope(node).say_first(form.exact or form.worth)
            kind, word = "open", f"kept, {worth}"
            if outcome.fate != "open":
                kind = "left" if outcome.fate == "left" else "closed"
                behind = worst - numbers[node]
                more = (
                    f", {behind:.3f} behind the last that is kept"
                    if kind == "left" and kept and behind > 0
                    else ""
                )
                word = f"{reading.words(node) or outcome.fate}, {worth}{more}"
            parent = detail.parents[node]
            yield DrawnSearchNode(
                reading.token(node) or 0,
                before[parent] if 0 <= parent < len(before) else -1,
                depth,
                "best" if (depth, node) in own else kind,
                word,
                outcome.fate == "ended",
            )
            if outcome.fate == "open":
                now.append(count)
            count += 1
        before = now


def _written_path(held: list[Held]) -> set[tuple[int, int]]:
    """Depth and number of the nodes on the way to the text that was written."""
    ways: list[tuple[list[int], list[tuple[int, int]]]] = [([], [])]
    emitted = held[-1][0].emitted
    for depth, (_, detail, form) in enumerate(held, 1):
        reading = TreeReading(detail, form, {}, ())
        before = ways
        ways = []
        for node, (parent, outcome) in enumerate(zip(detail.parents, reading.outcomes, strict=True)):
            if outcome.fate == "left" or not 0 <= parent < len(before):
                continue
            text, way = before[parent]
            text, way = [*text, reading.token(node) or 0], [*way, (depth, node)]
            if text == emitted:
                return {*way}
            if outcome.fate == "open":
                ways.append((text, way))
    return set()


def _tree_figure(trace: Trace, nodes: list[DrawnSearchNode], title: str, across: str) -> go.Figure:
    """The nodes as a tree, depth across."""
    y = branch_rows([one.parent for one in nodes])
    x = [0, *(one.depth for one in nodes)]
    lines = []
    for left in (True, False):  # nodes that were left are drawn below
        ends = [
            (one.parent + 1, k) for k, one in enumerate(nodes, 1) if (one.kind in ("left", "closed")) is left
        ]
        along = [p for a, b in ends for p in (x[a], x[a], x[b], None)]
        down = [p for a, b in ends for p in (y[a], y[b], y[b], None)]
        look = dict(color=LIGHT["line"] if left else LIGHT["branch"])
        lines.append(go.Scatter(x=along, y=down, mode="lines", line=look, hoverinfo="skip", showlegend=False))
    words = [escape_label(visible_token(one.token, trace.pieces)) for one in nodes]
    marks = [
        go.Scatter(
            x=[nodes[k].depth for k in own],
            y=[y[k + 1] for k in own],
            text=[words[k] for k in own],
            textposition="top center",
            textfont=dict(color=MUTED if kind in ("closed", "left") else INK),
            mode="markers+text" if kind == "best" or len(nodes) <= LABELS else "markers",
            name=name,
            marker=dict(size=9, **look),
            customdata=[nodes[k].says for k in own],
            hovertemplate="%{text}<br>%{customdata}<extra></extra>",
        )
        for kind, (name, look) in LOOK.items()
        if (own := [k for k, one in enumerate(nodes) if one.kind == kind])
    ]
    high = 170 + (ROW if len(nodes) <= LABELS else 6) * (max(y) + 1)
    drawing = chart(title, across, "", *lines, *marks, height=high)
    return drawing.update_layout(showlegend=True).update_yaxes(
        range=[max(y) + 0.6, -0.9], showticklabels=False, showgrid=False, ticks=""
    )
