"""Attention: how few entries of the cache draw nearly all of it, in one step and over all steps of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.lab.cache.attention import received_attention

from .chart import ACCEPT, INK, MUTED, chart

if TYPE_CHECKING:
    from pandas import DataFrame

SHARE = 0.9  # share of the attention that the table asks for
FIRST = 4  # first entries that the table treats as sinks


def figure(trace: Trace) -> go.Figure:
    """Share of the attention on the heaviest entries of a KV head, by their share of the whole text's entries.
    It is the mean over the recorded layers and heads. Raises ValueError if no step holds attention: record it with level
    "full"."""
    steps = [_cumulative_shares(weights) for weights in _attention_weights(trace)]
    x = np.linspace(0, 1, 101)
    one, run = (
        np.mean(curves, 0)
        for curves in (
            [_mean_curve(x, w) for w in steps],
            [_mean_curve(x, _cumulative_shares(_total_attention(trace)))],
        )
    )
    hover = "%{x:.0%} of the entries: %{y:.0%} of the attention<extra></extra>"
    drawing = chart(
        "How few entries draw the attention",
        "share of the entries, heaviest first",
        "share of the attention",
        go.Scatter(
            x=x, y=x, name="if all drew the same", line=dict(color=MUTED, dash="dash"), hoverinfo="skip"
        ),
        go.Scatter(x=x, y=one, name="in one step", line=dict(color=INK), hovertemplate=hover),
        go.Scatter(x=x, y=run, name="over the run", line=dict(color=ACCEPT), hovertemplate=hover),
    )
    return drawing.update_xaxes(tickformat=".0%").update_yaxes(tickformat=".0%")


def table(trace: Trace) -> DataFrame:
    """One row per recorded layer, mean over its KV heads. Raises ValueError as `figure` does.
    one step, run: entries that draw SHARE of the attention, in one step on average and over all steps; of: entries of the
    text;  first: share of the attention on the FIRST positions."""
    import pandas

    heads, total = int(trace.header.model["n_kv_heads"]), _total_attention(trace)
    steps = np.mean([_count_heaviest(weights) for weights in _attention_weights(trace)], 0)
    early = total[:, :FIRST].sum(1) / total.sum(1)
    columns = {
        "one step": steps,
        "run": _count_heaviest(total),
        "of": np.full(len(total), total.shape[1]),
        "first": early,
    }
    rows = {name: values.reshape(-1, heads).mean(1) for name, values in columns.items()}
    layers = next(
        fields.layers for step in trace.steps if (fields := step.fields) is not None and fields.layers
    )
    return pandas.DataFrame({"layer": layers, **rows}).round(3)


def _attention_weights(trace: Trace) -> Iterator[np.ndarray]:
    """For every step that holds attention, float [rows, n]: the share of each of the text's n positions; a row adds up to one.
    A row is a recorded layer and KV head."""
    layers, heads = int(trace.header.model["n_layers"]), int(trace.header.model["n_kv_heads"])
    length, none = len(trace.effective_prompt) + sum(len(step.emitted) for step in trace.steps), True
    for step in trace.steps:
        grid = None if step.fields is None else received_attention(step.fields, layers * heads, heads, length)
        if grid is not None:
            none = False
            yield grid[~np.isnan(grid).any(1)]
    if none:
        raise ValueError('No step of this run holds attention: record it with level="full".')


def _total_attention(trace: Trace) -> np.ndarray:
    """float [rows, n]: the attention that each position drew over all steps."""
    total: np.ndarray = np.sum(list(_attention_weights(trace)), 0)
    return total


def _cumulative_shares(weights: np.ndarray) -> np.ndarray:
    """float [rows, n]: the running sum from the heaviest entry down, as a share of all."""
    summed = np.cumsum(-np.sort(-weights, 1), 1)
    shares: np.ndarray = summed / summed[:, -1:]
    return shares


def _mean_curve(x: np.ndarray, heaviest: np.ndarray) -> np.ndarray:
    """float [len(x)]: the share of the attention on the heaviest share x of the entries, mean over rows."""
    places = np.linspace(0, 1, heaviest.shape[1] + 1)
    curve: np.ndarray = np.mean([np.interp(x, places, [0.0, *row]) for row in heaviest], 0)
    return curve


def _count_heaviest(weights: np.ndarray) -> np.ndarray:
    """int [rows]: the number of entries that draw SHARE of the attention, the heaviest first."""
    counts: np.ndarray = (_cumulative_shares(weights) < SHARE - 1e-9).sum(1) + 1
    return counts
