"""Search: the tree of a search as it grew: what was begun, kept and left, each with what it was worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import plotly.graph_objects as go

from decodescope.engine.core.arguments import whole
from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.details.searched import DONE, Planner, Search
from decodescope.engine.trace.encoding.forks import method_at
from decodescope.lab.formatting.style import LIGHT
from decodescope.lab.formatting.tokens import shown_id

from .chart import ACCEPT, INK, MUTED, chart, literal
from .tree import ROW, rows

LABELS = 100  # nodes up to which each has its token written beside it, not those of the best text alone
LOOK = {
    "open": ("goes on", dict(symbol="circle", color=INK)),
    "best": ("the best", dict(symbol="star", color=ACCEPT)),
    "closed": ("closed", dict(symbol="circle-open", color=MUTED)),
    "left": ("left", dict(symbol="x-thin-open", color=MUTED)),
}


@dataclass
class Drawn:
    """A node of a drawn tree. parent: -1 behind the text;  kind: of LOOK;  says: what was noted of it"""

    token: int
    parent: int
    depth: int
    kind: str
    says: str


def figure(trace: Trace, step: int | None = None, node: int | None = None) -> go.Figure:
    """Of a search by tests its tree behind `node` texts, each with the terms by which it was chosen; of beams the hypotheses up
    to step `step`, and those that were left. Without either all of it. Raises ValueError where no step tells of a search,
    ParamError for a place that there is not."""
    held = next((one for one in trace.steps if one.search is not None), None)
    if held is not None:
        return _texts(trace, held, node)
    beams = [one for one in trace.steps if one.beams is not None]
    if not beams:
        raise ValueError(
            "No step of this run tells of a search: take a run with the strategy planned, beam or diverse_beam."
        )
    last = whole(len(beams) - 1 if step is None else step, "step", 0, len(beams) - 1)
    nodes = list(_hypotheses(beams[: last + 1], last + 1 == len(beams)))
    left = sum(one.kind == "left" for one in nodes)
    title = f"Hypotheses up to step {last}: {len(nodes) - left} kept, {left} left"
    return _drawn(trace, nodes, title, "tokens")


def _texts(trace: Trace, step: Step, count: int | None) -> go.Figure:
    """The tree of beginnings behind `count` texts."""
    search, knobs = step.search, method_at(trace.header, step.step).get("strategy") or {}
    assert search is not None
    upto = whole(len(search.rollouts) if count is None else count, "node", 1, len(search.rollouts))
    again = Search(offers=search.offers[:1], priors=search.priors[:1])
    planner, terms = Planner(again, float(knobs.get("c", 0)), float(knobs.get("base", 1))), [""]
    for born in range(1, upto + 1):
        parent, token = search.parents[born], search.tokens[born]
        place = again.offers[parent].index(token)
        score, prior = planner.scores(parent)[place], again.priors[parent][place]
        ends = search.closed[born] if not search.offers[born] else ""
        planner.bear(parent, token, search.offers[born], search.priors[born], ends)
        reward = search.rollouts[born - 1].reward
        planner.reward(born, reward)
        terms.append(
            f"text {born}: {reward:.0%} of the tests; chosen with Q 0 + {score:.3f} for P {prior:.3f}"
        )
    rewards = [x.reward for x in search.rollouts[:upto]]
    best = rewards.index(max(rewards)) + 1
    way, at = set(), best
    while at > 0:
        way.add(at)
        at = again.parents[at]
    nodes = [
        Drawn(
            again.tokens[k],
            again.parents[k] - 1,
            len(again.path(k)),
            "best" if k in way else "closed" if again.closed[k] else "open",
            terms[k] + _now(again, k),
        )
        for k in range(1, upto + 1)
    ]
    return _drawn(
        trace,
        nodes,
        f"The search behind {upto} texts: the best passes {max(rewards):.0%} of the tests",
        "tokens",
    )


def _now(search: Search, node: int) -> str:
    """What became of a node."""
    closed = search.closed[node]
    if not closed:
        shut = ""
    elif closed == DONE:
        shut = "; closed: nothing is left behind it"
    else:
        shut = "; closed: its text ends"
    return f"<br>N {search.visits[node]}, Q {search.values[node]:.3f}{shut}"


def _hypotheses(steps: list[Step], over: bool) -> Iterator[Drawn]:
    """The hypotheses of all steps, each behind that which it went on from, and what was left of each step. over: the last step
    is the run's last."""
    own = _way(steps) if over else set()
    before, count = [-1], 0
    for depth, step in enumerate(steps, 1):
        beams = step.beams
        assert beams is not None
        worst = min(beams.scores, default=0.0)
        now = []
        for rank, (token, parent, score) in enumerate(
            zip(beams.tokens, beams.parents, beams.scores, strict=True)
        ):
            kind = "best" if (depth, rank) in own else "open"
            yield Drawn(token, before[parent], depth, kind, f"kept, {score:.3f} nats")
            now.append(count)
            count += 1
        for row in beams.pruned or ():
            behind = (
                f", {worst - row[2]:.3f} behind the last that is kept"
                if beams.scores and row[2] < worst
                else ""
            )
            yield Drawn(int(row[1]), before[int(row[0])], depth, "left", f"left, {row[2]:.3f} nats{behind}")
            count += 1
        before = now


def _way(steps: list[Step]) -> set[tuple[int, int]]:
    """Depth and rank of the hypotheses that lead to the text that was written."""
    ways: list[tuple[list[int], list[tuple[int, int]]]] = [([], [])]
    emitted = steps[-1].emitted
    best: list[tuple[int, int]] = []
    for depth, step in enumerate(steps, 1):
        assert step.beams is not None
        pairs = enumerate(zip(step.beams.tokens, step.beams.parents, strict=True))
        ways = [
            ([*ways[parent][0], token], [*ways[parent][1], (depth, rank)]) for rank, (token, parent) in pairs
        ]
        mine = [way for text, way in ways if text == emitted[:depth]]
        best = mine[0] if mine and depth >= len(emitted) - 1 else best
    return set(best)


def _drawn(trace: Trace, nodes: list[Drawn], title: str, across: str) -> go.Figure:
    """The nodes as a tree, depth across."""
    y = rows([one.parent for one in nodes])
    x = [0, *(one.depth for one in nodes)]
    lines = []
    for left in (True, False):  # what was left lies below
        ends = [
            (one.parent + 1, k) for k, one in enumerate(nodes, 1) if (one.kind in ("left", "closed")) is left
        ]
        along = [p for a, b in ends for p in (x[a], x[a], x[b], None)]
        down = [p for a, b in ends for p in (y[a], y[b], y[b], None)]
        look = dict(color=LIGHT["line"] if left else LIGHT["branch"])
        lines.append(go.Scatter(x=along, y=down, mode="lines", line=look, hoverinfo="skip", showlegend=False))
    words = [literal(shown_id(one.token, trace.pieces)) for one in nodes]
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
