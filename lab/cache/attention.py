"""Attention: the weights from the committed rows of one step to the entries of one head, where a trace recorded them."""

from __future__ import annotations

from typing import Any

import numpy as np

from decodescope.engine.core.refusal import Refusal
from decodescope.engine.trace.records.events import Fields


def attention_rows(fields: Fields, layer: int, head: int, columns: int) -> dict[str, Any]:
    """The weights of one layer and KV head, by ascending position, in at most `columns` columns, each the sum over its `bin`
    positions.

    weights: [group, R, columns];  positions: the first one of each column;  ends: the last one;  total: sum per row
    Raises Refusal if the layer or head is not recorded, or if the arrays do not fit each other.
    """
    attention, positions = fields.attention, fields.positions
    if attention is None or positions is None or not fields.layers:
        raise Refusal("This step holds no attention.")
    if (
        attention.ndim != 5
        or positions.ndim != 3
        or positions.shape != (*attention.shape[:2], attention.shape[4])
    ):
        raise Refusal("The shapes of this step's attention and positions do not fit each other.")
    if layer not in fields.layers or len(fields.layers) != attention.shape[0]:
        raise Refusal(f"Layer {layer} is not recorded; recorded are {', '.join(map(str, fields.layers))}.")
    if not 0 <= head < attention.shape[1]:
        raise Refusal(f"Head {head} is not recorded; a layer has {attention.shape[1]} KV heads.")
    at = fields.layers.index(layer)
    order = np.argsort(positions[at, head], kind="stable")
    order = order[positions[at, head][order] >= 0]
    known = positions[at, head][order].astype(np.int64)
    weights = np.nan_to_num(attention[at, head].astype(np.float64))[:, :, order]  # [group, R, n]
    width = max(1, -(-len(known) // max(1, columns)))
    starts = np.arange(0, len(known), width)
    summed = np.add.reduceat(weights, starts, axis=2) if len(starts) else weights
    return {
        "bin": width,
        "positions": known[starts].tolist(),
        "ends": known[np.minimum(starts + width, len(known)) - 1].tolist() if len(starts) else [],
        "weights": np.round(summed, 5).tolist(),
        "known": known,
        "rows": weights,
    }


def received_attention(fields: Fields, rows: int, heads: int, length: int) -> np.ndarray | None:
    """float [rows, length]: the share of a step's attention on each position, per layer and KV head, adding up to one.
    Rows of layers that are not recorded are NaN. None if no attention is recorded, or if its shapes make no sense."""
    attention, positions = fields.attention, fields.positions
    if (
        attention is None
        or positions is None
        or not fields.layers
        or attention.ndim != 5
        or positions.ndim != 3
    ):
        return None
    if positions.shape != (*attention.shape[:2], attention.shape[4]) or attention.shape[:2] != (
        len(fields.layers),
        heads,
    ):
        return None
    grid = np.full((rows, length), np.nan)
    for layer, weights, at in zip(fields.layers, attention, positions, strict=True):
        if not 0 <= layer * heads <= rows - heads:
            return None
        for head in range(heads):
            seen = (at[head] >= 0) & (at[head] < length)
            grid[layer * heads + head] = 0
            got = np.nan_to_num(weights[head].astype(np.float64)).sum((0, 1))[seen]
            grid[layer * heads + head, at[head][seen]] = got / max(float(got.sum()), 1e-30)
    return grid


def attention_shares(
    known: np.ndarray, rows: np.ndarray, first: int, newest: int, length: int
) -> list[float]:
    """The shares of attention of `rows` (float [group, R, n]) on the `first` positions, on the `newest` of `length`, and
    between.
    `known`: the position of each column. A position that is both counts as one of the first."""
    early = known < first
    late = (known >= length - newest) & ~early
    total = max(float(rows.sum()), 1e-30)
    return [float(rows[..., part].sum()) / total for part in (early, late, ~early & ~late)]
