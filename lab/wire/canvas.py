"""Canvas on the wire: the message fields on a pass that filled places among the text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from decodescope.engine.trace.detail_checks.details import canvas_reading
from decodescope.engine.trace.details.shapes import CanvasDetail
from decodescope.engine.trace.records.events import Header, Piece, Step
from decodescope.engine.trace.records.phases import is_deciding_pass

from .single_precision import single_precision

ROOM = 2048  # bytes of uncommitted places, in a step that is not requested


def encode_canvas(
    header: Header, step: Step, text: Callable[[int], Piece], *, brief: bool = False, whole: bool = False
) -> dict[str, Any]:
    """The pass of a step over a canvas, or nothing. Places are positions of the text, as in the record.

    canvas: {"name": of its declaration, "says": the step in a clause, "at": [start, length], "among": [first, behind] of its
           block, "now": [[place, rule, token id, text], ...], "count", "cache", "stale", "fed": rows that the pass read,
           "again": places masked again, where there are some,
           "standins": [[place, token id, text], ...] of tokens fed instead of others, where there are some,
           "open": [place, ...], "c": [confidence, ...], "tokens": [[token id, text], ...] their candidates, each once,
           "which": [index into tokens, ...], "bars": [one for all, or one each] or null, "order", "anchors",
           "tried": {"at": place, "won": index, "of": [[token id, text, probability, sure places, score], ...]}, "vetoes":
           [[place, token id, text, whether only together with others], ...], "witness": [text, ...], each where there is one}

    A brief has confidences with two digits, and nothing from "bars" on. Unless `whole`, what is above ROOM is left out from
    "open" on, and "few" says so.
    """
    fill: CanvasDetail | None = step.detail_of("canvas")
    read = None if fill is None else canvas_reading(header, step, fill)
    if fill is None or read is None or read.form.drawn != "canvas":
        return {}
    now = zip(fill.places, fill.rules, fill.tokens, strict=True)
    message: dict[str, Any] = {
        "name": fill.name,
        "says": read.clause,
        "at": [fill.start, fill.length],
        "among": fill.block,
        "now": [[place, rule, token, text(token)] for place, rule, token in now],
        "count": fill.count,
        "cache": fill.cache,
        "stale": fill.stale,
        "fed": sum(one.tokens for one in step.passes if is_deciding_pass(one)),
    }
    if fill.standins:
        message["standins"] = [[place, token, text(token)] for place, token in fill.standins]
    if fill.reopened:
        message["again"] = fill.reopened
    more = {} if fill.confidence is None else _encode_open_places(fill, fill.confidence, text, brief)
    if (
        not whole
        and len(json.dumps(more, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")) > ROOM
    ):
        return {"canvas": message, "few": True}
    return {"canvas": message | more}


def _encode_open_places(
    fill: CanvasDetail, confidence: np.ndarray, text: Callable[[int], Piece], brief: bool
) -> dict[str, Any]:
    """The pass's knowledge of the open places."""
    tokens, which = np.unique(fill.candidate, return_inverse=True)
    more: dict[str, Any] = {
        "open": fill.open.tolist(),
        "c": [round(float(x), 2) if brief else single_precision(x) for x in confidence],
        "tokens": [[token, text(token)] for token in tokens.tolist()],
        "which": which.tolist(),
    }
    if brief:
        return more
    bars, order = fill.columns.get("bars"), fill.columns.get("order")
    each = None if bars is None else [single_precision(x) for x in bars]
    return more | {
        "bars": each[:1] if each and len(set(each)) == 1 else each,
        "order": None if order is None else order.tolist(),
        "anchors": fill.anchors,
        **_encode_exploration(fill, text),
    }


def _encode_exploration(fill: CanvasDetail, text: Callable[[int], Piece]) -> dict[str, Any]:
    """The trials of the pass, and the refusals of a grammar."""
    more: dict[str, Any] = {}
    if (tried := fill.explored) is not None:
        rows = zip(tried.tokens, tried.chance, tried.sure, tried.scores, strict=True)
        of = [
            [token, text(token), single_precision(p), sure, single_precision(score)]
            for token, p, sure, score in rows
        ]
        more["tried"] = {"at": tried.place, "won": tried.won, "of": of}
    if fill.vetoes is not None:
        more["vetoes"] = [[x.place, x.token, text(x.token), x.together] for x in fill.vetoes]
        more["witness"] = [text(token) for token in fill.witness or ()]
    return more


def encode_chain(
    header: Header, step: Step, texts: Callable[[list[int]], list[Any]], *, brief: bool = False
) -> dict[str, Any]:
    """The row after the pass, or nothing. texts: ids -> tokens as views have them

    chain, or in a brief settling: {"name": of its declaration, "says": the step in a clause, "start": its first position,
    "fixed": places that are settled, "after": [token, ...], "p": [how likely each is, ...] where recorded}. Not in a brief:
    "before": the tokens that the pass read, if these are a column, "words": the state of each place, each word once, "which":
    [index into words, ...]
    """
    detail: CanvasDetail | None = step.detail_of("canvas")
    read = None if detail is None else canvas_reading(header, step, detail)
    if detail is None or read is None or read.form.drawn != "chain":
        return {}
    message = {
        "name": detail.name,
        "says": read.clause,
        "start": detail.start,
        "fixed": len(detail.places),
        "after": texts(detail.candidate.tolist()),
    }
    if detail.confidence is not None:
        message["p"] = [single_precision(x) for x in detail.confidence.tolist()]
    if brief:
        return {"settling": message}
    guessed = next((x.name for x in read.form.columns if x.type == "token" and x.name in detail.columns), "")
    words = [read.words(k) for k in range(len(detail))]
    each = list(dict.fromkeys(words))
    before = texts(detail.columns[guessed].tolist()) if guessed else []
    return {"chain": message | {"before": before, "words": each, "which": [each.index(x) for x in words]}}
