"""Risk: the risk of a calibrated knob by its value, its bound, and the value that was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from decodescope.engine.core.calibration import MARK, NAME, Calibration, load_calibration, load_named
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.paths import expand_path
from decodescope.engine.cost import risk

from ..chart import ACCEPT, INK, MUTED, REJECT, chart, text_label

if TYPE_CHECKING:
    from pandas import DataFrame

TESTS = {x.__name__: x for x in (risk.binomial, risk.hoeffding, risk.hoeffding_bentkus)}
HALVES = 200
WORDS = {
    "edit": "share of tokens to edit",
    "differs": "share of texts that differ",
    "task": "share of the score that is lost",
}


def figure(given: Calibration | str | Path) -> go.Figure:
    """The curve of a calibration: the mean loss at each tried value, from the safe end on.
    The calibration is a name of `decodescope calibrate` or a file. Filled points passed the test, hollow ones did not; dashed
    is delta. Raises ParamError if there is none.
    """
    one = calibration_from(given)
    order = range(len(one.curve))
    said = [
        f"{x.value:g}: risk {x.risk:.4f}, p {x.p:.2g}, {'passed' if x.passed else 'not passed'}"
        for x in one.curve
    ]
    points = go.Scatter(
        x=[*order],
        y=[x.risk for x in one.curve],
        mode="lines+markers",
        name="mean loss",
        line=dict(color=MUTED, width=1),
        marker=dict(
            size=9,
            color=[ACCEPT if x.passed else "#ffffff" for x in one.curve],
            line=dict(color=ACCEPT, width=1.75),
        ),
        customdata=said,
        hovertemplate="%{customdata}<extra></extra>",
    )
    at = next(i for i in reversed(order) if one.curve[i].passed and one.curve[i].value == one.value)
    star = dict(size=19, color=INK, symbol="circle-open", line=dict(width=2))
    chosen = go.Scatter(
        x=[at], y=[one.curve[at].risk], mode="markers", name="chosen", marker=star, hoverinfo="skip"
    )
    title = f"{text_label(one.name, 40)}: {one.part}.{one.knob} = {one.value:g}, {one.n} texts"
    across, up = f"{one.part}.{one.knob}, from the safe end on", f"risk ({WORDS.get(one.risk, one.risk)})"
    drawing = chart(title, across, up, points, chosen)
    drawing.add_hline(
        y=one.delta, line=dict(color=REJECT, dash="dash"), annotation_text=f"delta {one.delta:g}"
    )
    drawing.update_xaxes(tickvals=[*order], ticktext=[f"{x.value:g}" for x in one.curve])
    return drawing.update_yaxes(rangemode="tozero")


def table(given: Calibration | str | Path) -> DataFrame:
    """The same as numbers."""
    import pandas

    one = calibration_from(given)
    rows = [(x.value, x.risk, x.p, x.passed, x.value == one.value) for x in one.curve]
    return pandas.DataFrame(
        rows, columns=[f"{one.part}.{one.knob}", f"risk ({one.risk})", "p", "passed", "chosen"]
    )


def half_split_table(given: Calibration | str | Path, count: int = HALVES, seed: int = 0) -> DataFrame:
    """The choice of the same test on one half of the texts, and the loss of that choice on the other half.

    It has a row for each of `count` random halvings, with `value` (NaN: nothing passed), `risk` on the half that chose, and
    `held_out` on the other.

    Only values that were decoded can be chosen: a calibration without `--whole` has the walk up to its first failure.
    """
    import pandas

    one = calibration_from(given)
    losses, rng = np.array([x.losses for x in one.curve]), np.random.default_rng(seed)  # [values, n]
    rows = []
    for _ in range(count):
        order = rng.permutation(one.n)
        half, rest = losses[:, order[: one.n // 2]], losses[:, order[one.n // 2 :]]
        passed = risk.fixed_sequence_test((TESTS[one.test](row.tolist(), one.delta) for row in half), one.eps)
        last = passed - 1
        rows.append(
            (one.curve[last].value, half[last].mean(), rest[last].mean())
            if passed
            else (np.nan, np.nan, np.nan)
        )
    return pandas.DataFrame(rows, columns=["value", "risk", "held_out"])


def calibration_from(given: Calibration | str | Path) -> Calibration:
    """A calibration, by itself, by its name, or from its file. Raises ParamError if there is none, or none with a curve."""
    if isinstance(given, Calibration):
        return given
    text = str(given).removeprefix(MARK)
    one = load_named(text) if NAME.fullmatch(text) else load_calibration(expand_path(text))
    if not isinstance(one, Calibration):
        raise ParamError(
            f"{one.name} holds thresholds by exit, which have no curve: choose one of calibrate --knob."
        )
    return one
