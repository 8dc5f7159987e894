"""Checks inside a canvas, made while a trace is read: lengths, places, ids."""

from __future__ import annotations

import numpy as np

from ..values.limits import TraceError
from ..values.numbers import EPS, validate_array, validate_counts, validate_ids, validate_range
from .shapes import CanvasDetail


def validate_canvas(canvas: CanvasDetail, where: str, vocab: int) -> None:
    """Lengths, places and ids of a canvas; where: its name in a message. Raises TraceError."""
    opened = _validate_open_places(canvas, where)
    validate_array(canvas.candidate, f"{where}.candidate", 1, "iu")
    columns = {"candidate": canvas.candidate, **canvas.columns}
    if canvas.confidence is not None:
        validate_array(canvas.confidence, f"{where}.confidence", 1, "f")
        validate_range(canvas.confidence, 0, 1 + EPS, f"{where}.confidence")
        columns["confidence"] = canvas.confidence
    for name, column in columns.items():
        validate_array(column, f"{where}.{name[:20]}", 1, "iuf")
        if len(column) != len(canvas):
            raise TraceError(f"{where}.{name[:20]} has {len(column)} entries, where {len(canvas)} are due")
    _validate_exploration(canvas, where)
    validate_ids([*canvas.ids, *canvas.tokens], vocab, where)
    if not len(canvas.places) == len(canvas.tokens) == len(canvas.rules):
        raise TraceError(f"{where} has not one token and one rule for each place that it settles")
    _validate_standins(canvas, where, vocab)
    if canvas.cut is not None and canvas.cut - 1 not in opened:
        raise TraceError(f"{where}.cut is {canvas.cut}, which is behind no open place")
    validate_counts([canvas.count, canvas.stale], where)


def _validate_open_places(canvas: CanvasDetail, where: str) -> np.ndarray:
    """The open places as int64 [O]: ascending, within a block that is a part of the canvas."""
    first, behind = canvas.block if len(canvas.block) == 2 else (0, -1)
    if not 0 <= canvas.start <= first < behind <= canvas.start + canvas.length:
        part = f"no part of the {canvas.length} places from {canvas.start} on"
        raise TraceError(f"{where}.block is {canvas.block[:3]}, which is {part}")
    validate_array(canvas.open, f"{where}.open", 1, "iu")
    opened = canvas.open.astype(np.int64)
    if not len(opened) or opened[0] < first or opened[-1] >= behind or (np.diff(opened) <= 0).any():
        raise TraceError(f"{where}.open does not rise within the block from {first} to {behind - 1}")
    if canvas.edge is not None and not first < canvas.edge < behind:
        within_block = f"no place within those from {first} to {behind - 1}"
        raise TraceError(f"{where}.edge is {canvas.edge}, which is {within_block}")
    return opened


def _validate_exploration(canvas: CanvasDetail, where: str) -> None:
    """Lengths and places of an exploration."""
    tried = canvas.explored
    if tried is None:
        return
    k, others = len(tried.tokens), canvas.open[canvas.open != tried.place].astype(np.int64)
    if len(others) + 1 != len(canvas.open) or not np.array_equal(tried.open, others):
        raise TraceError(
            f"{where}.explored records other open places than the pass, or {tried.place} is none of them"
        )
    shapes = (
        (tried.chance, (k,), "f"),
        (tried.candidate, (k, len(others)), "iu"),
        (tried.confidence, (k, len(others)), "f"),
    )
    for column, shape, kinds in (*shapes, (tried.scores, (k,), "f")):
        if column.shape != shape or column.dtype.kind not in kinds:
            raise TraceError(
                f"{where}.explored has a column of shape {list(column.shape)}, and {list(shape)} is due"
            )
    if not k or len(tried.sure) != k or not 0 <= tried.won < k or len(set(tried.tokens)) < k:
        raise TraceError(
            f"{where}.explored does not name different tokens, a number of sure places for each, and a winner"
        )
    for column in (tried.chance, tried.confidence):
        if not (column >= 0).all() or not (column <= 1 + 1e-6).all():
            raise TraceError(f"{where}.explored has an entry that is no probability")


def _validate_standins(canvas: CanvasDetail, where: str, vocab: int) -> None:
    """Check that stand-ins are a position and an id each."""
    for row in canvas.standins or []:
        if not (type(row) is list and len(row) == 2 and all(type(x) is int for x in row)):
            raise TraceError(f"{where}.standins has a row that is no position and id")
        if not (0 <= row[0] < canvas.start + canvas.length and 0 <= row[1] < vocab):
            raise TraceError(
                f"{where}.standins has the position {row[0]} and the id {row[1]}, and one of them is none"
            )
