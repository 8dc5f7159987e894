"""Report figures: where drafts are rejected, as charts for a notebook."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from decodescope.lab.figures.chart import ACCEPT, INK, LINE, MUTED, REJECT, TARGET, chart
from decodescope.lab.figures.time import PHASES
from decodescope.lab.formatting.style import LIGHT

from .oracle import OracleCurve
from .report import AcceptanceReport
from .speed_curve import SpeedPoint, best_length
from .tables import FEW
from .tally import AcceptanceCount

HALF = "rgba({}, {}, {}, 0.35)".format(*(int(ACCEPT[i : i + 2], 16) for i in (1, 3, 5)))
HOVER = "%{x} deep: %{y:.2f} times<extra>%{fullData.name}</extra>"
SHARE = "accepted, of those tried"


def depth(report: AcceptanceReport) -> go.Figure:
    """Share accepted by depth of the guess, and the share of drafts of that depth that were accepted down to there."""
    rows = [x for x in report.depths if x.offered]
    line = dict(mode="lines+markers", line=dict(color=INK), marker=dict(size=8, color=INK))
    so_far = go.Scatter(
        x=[x.label for x in rows], y=[x.accepted / x.offered for x in rows], name="down to there", **line
    )
    drawing = chart("Acceptance by depth", "depth of the guess", SHARE, _bars(rows, "at this depth"), so_far)
    return drawing.update_xaxes(type="category").update_yaxes(range=[0, 1.05], tickformat=".0%")


def entropy(report: AcceptanceReport) -> go.Figure:
    """Share accepted by the entropy of the target's distribution at the place."""
    rows = [x for x in report.entropy if x.tested]
    drawing = chart(
        "By the target's entropy", "entropy of the target's distribution, nats", SHARE, _bars(rows, "places")
    )
    return drawing.update_xaxes(type="category").update_yaxes(range=[0, 1.05], tickformat=".0%")


def kinds(report: AcceptanceReport) -> go.Figure:
    """Guesses by kind of token: accepted ones below and rejected ones on top."""
    rows = [x for x in report.kinds if x.tested]
    names, refused = [x.label for x in rows], [x.tested - x.accepted for x in rows]
    hover = "%{x}: %{y} guesses %{fullData.name}<extra></extra>"
    stays = go.Bar(
        x=names, y=[x.accepted for x in rows], name="accepted", marker=dict(color=ACCEPT), hovertemplate=hover
    )
    goes = go.Bar(x=names, y=refused, name="refused", marker=dict(color=REJECT), hovertemplate=hover)
    return chart("By kind of token", "kind of the guess", "guesses", stays, goes).update_layout(
        barmode="stack"
    )


def calibration(report: AcceptanceReport) -> go.Figure:
    """Acceptance by q, the probability with which the draft drew its guess, and the target's mean p for comparison.

    The dashed line is where p is q. Raises ValueError for drafts chosen without chance, which have no q.
    """
    rows = [x for x in report.bins if x.tested]
    if not rows:
        raise ValueError("The drafts were chosen without chance (one-hot): there is no q to draw.")
    largest = max(x.tested for x in rows)
    sizes = [8 + 16 * (x.tested / largest) ** 0.5 for x in rows]
    counts = [x.tested for x in rows]
    hover = dict(customdata=counts, hovertemplate="q %{x:.2f}: %{y:.2f}, of %{customdata} guesses")
    dots = dict(mode="markers", marker=dict(size=sizes, color=ACCEPT))
    parts = [
        go.Scatter(
            x=[0, 1],
            y=[0, 1],
            name="p = q",
            mode="lines",
            line=dict(color=MUTED, dash="dash"),
            hoverinfo="skip",
        ),
        go.Scatter(x=[x.q for x in rows], y=[x.share for x in rows], name="accepted", **dots, **hover),
    ]
    known = [x for x in rows if x.p is not None]
    if known:
        hollow = dict(size=9, color=LIGHT["bg"], line=dict(color=INK, width=1.5))
        mean = go.Scatter(
            x=[x.q for x in known], y=[x.p for x in known], name="mean p", mode="markers", marker=hollow
        )
        parts.append(mean)
    drawing = chart(
        "What the draft believed", "q of the guess, mean of the bin", "share accepted, or mean p", *parts
    )
    return drawing.update_xaxes(range=[0, 1.03]).update_yaxes(range=[0, 1.05])


def time(report: AcceptanceReport) -> go.Figure:
    """The steps' time by phase, one bar."""
    parts = [
        go.Bar(x=[report.spent.get(key, 0.0)], y=[""], name=name, orientation="h", marker=dict(color=colour))
        for key, name, colour in PHASES
    ]
    drawing = chart("Where the time went", "share of the steps' time", "", *parts, height=220)
    return drawing.update_layout(barmode="stack").update_xaxes(range=[0, 1], tickformat=".0%")


def lengths(report: AcceptanceReport, oracle: OracleCurve | None = None) -> go.Figure:
    """Speed over plain decoding by length of the draft, by the model of costs; hollow beyond the deepest draft seen.

    A star marks the best length; the dashed line is a draft that is always right. oracle: of this report and another one; adds
    the other's curve, and that of choosing the better draft at each position, both on the text that they have in common
    """
    points, deep = report.curve, len(report.depths)
    star = dict(size=15, symbol="star", color=TARGET)
    parts = [
        _speed_line(points[: deep + 1], "of drafts that were seen", ACCEPT),
        _speed_line(points[deep + 1 :], "carried on", INK, hollow=True),
        go.Scatter(
            x=[x.length for x in points],
            y=[x.perfect for x in points],
            name="always right",
            mode="lines",
            line=dict(color=MUTED, dash="dash"),
            hovertemplate=HOVER,
        ),
    ]
    if points:
        best = best_length(points)
        parts.append(
            go.Scatter(
                x=[best.length],
                y=[best.over_plain],
                name=f"best: {best.length}",
                mode="markers",
                marker=star,
                hovertemplate=HOVER,
            )
        )
    if oracle is not None:
        x = [point.length for point in oracle.points]
        for name, y, colour, symbol in (
            ("the other drafter", [point.alone[1] for point in oracle.points], REJECT, "diamond"),
            ("the better one at each position", [point.oracle for point in oracle.points], TARGET, "square"),
        ):
            line = dict(mode="lines+markers", line=dict(color=colour, width=1.5))
            marker = dict(size=9, color=colour, symbol=symbol)
            parts.append(go.Scatter(x=x, y=y, name=name, marker=marker, hovertemplate=HOVER, **line))
    drawing = chart(
        "Speed by length, by the model",
        "depth at which drafts end",
        "speed, plain decoding = 1",
        *(x for x in parts if x.x),
    )
    drawing.add_hline(y=1, line=dict(color=LINE, width=1.5), layer="below")
    return drawing.update_yaxes(rangemode="tozero")


def _speed_line(points: Sequence[SpeedPoint], name: str, colour: str, hollow: bool = False) -> go.Scatter:
    marker = (
        dict(size=10, color=LIGHT["bg"], line=dict(color=colour, width=1.5))
        if hollow
        else dict(size=10, color=colour)
    )
    return go.Scatter(
        x=[x.length for x in points],
        y=[x.over_plain for x in points],
        name=name,
        mode="lines+markers",
        line=dict(color=colour, width=1, dash="dot" if hollow else None),
        marker=marker,
        hovertemplate=HOVER,
    )


def _bars(rows: Sequence[AcceptanceCount], name: str) -> go.Bar:
    """Shares, with the number of tests in the hover; pale if there are few."""
    colours = [ACCEPT if x.tested >= FEW else HALF for x in rows]
    return go.Bar(
        x=[x.label for x in rows],
        y=[x.share for x in rows],
        name=name,
        marker=dict(color=colours),
        customdata=[x.tested for x in rows],
        hovertemplate="%{x}: %{y:.1%} of %{customdata}<extra></extra>",
    )
