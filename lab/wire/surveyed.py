"""Surveyed: what a view is told of all that a step held against each other: the spans of a passage, or texts that voted."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from decodescope.engine.trace.records.events import Drawn, Header, Piece, Spans, Step
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.decision.tally import listed

from .single import single

MOST = 1 << 16  # numbers of a map; a larger one stays in the trace
LONGEST = 96  # characters of a text


def surveyed(header: Header, step: Step, text: Callable[[int], Piece], whole: bool) -> dict[str, Any]:
    """survey, or nothing. Unless `whole`, its map is left out, and "few" says so; of more than MOST numbers it always is, and
    so it is where the trace holds none.

    Of spans {"of": "spans", "count": tokens of the passage, "long": the most of a span, "normal": whether they are judged by
    the token, "best", "greedy": [first token, tokens] or null, "rows": the same of each row of the tally, "words": the
    passage's tokens, "losses": float32 by first token and length, base64, NaN where there is none}. Of a vote {"of": "votes",
    "by": the measure, "chosen", "votes", "texts", "like": rows of how like each two are}."""
    if step.spans is not None:
        message, large = _spans(header, step.spans, text)
    elif step.drawn is not None and step.drawn.like is not None:
        message, large = _votes(step.drawn, text)
    else:
        return {}
    if whole or not large:
        return {"survey": message | large}
    return {"survey": message, "few": True}


def _spans(
    header: Header, spans: Spans, text: Callable[[int], Piece]
) -> tuple[dict[str, Any], dict[str, Any]]:
    passage = header.prompt[spans.start : spans.start + spans.count].tolist()
    message = {
        "of": "spans",
        "count": spans.count,
        "normal": spans.normal,
        "best": spans.best,
        "greedy": spans.greedy,
    }
    message |= {"rows": [list(span) for span in listed(spans)]}
    if spans.losses is None or spans.losses.size > MOST:
        return message, {}
    numbers = base64.b64encode(np.ascontiguousarray(spans.losses, dtype="<f4").tobytes()).decode()
    message["long"] = spans.losses.shape[1]
    return message, {"words": [text(token) for token in passage], "losses": numbers}


def _votes(vote: Drawn, text: Callable[[int], Piece]) -> tuple[dict[str, Any], dict[str, Any]]:
    texts = [join(one.tokens, {x: text(x) for x in one.tokens})[:LONGEST] for one in vote.texts]
    message = {"of": "votes", "by": vote.by, "chosen": vote.chosen}
    if vote.like is None or vote.like.size > MOST:
        return message, {}
    like = [[single(x) for x in row] for row in vote.like.tolist()]
    return message, {"texts": texts, "votes": vote.votes, "like": like}
