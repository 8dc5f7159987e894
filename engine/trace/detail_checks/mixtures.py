"""Mixtures: texts with last tokens that are read as one row, each by its share of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..details.shapes import Detail, TreeDetail
from ..details.tree import CLOSE
from ..records.events import Step


def mixture_problems(detail: Detail, step: Step, knobs: Mapping[str, Any]) -> Iterator[str]:
    """Problems of texts that are read as one: the best possible continuations must go on, and shares follow from scores."""
    if not isinstance(detail, TreeDetail):
        yield "its texts are no tree"
        return
    nothing = [None] * len(detail)
    scores, words = detail.columns.get("score", nothing), detail.columns.get("outcome", [])
    if len(words) != len(detail) or [x for x in scores if isinstance(x, int | float)] != scores:
        yield "it has a text without a score"
        return
    kept = [score for score, word in zip(scores, words, strict=True) if word == "kept"]
    left = [score for score, word in zip(scores, words, strict=True) if word == "refused"]
    if kept and left and max(left) > min(kept) + CLOSE:
        yield f"it kept a text of {min(kept):.6g} nats, and left one of {max(left):.6g}"
    shares = detail.columns.get("share", [])[: len(kept)]
    odds = [math.exp(score - max(kept)) for score in kept]
    for number, (share, due) in enumerate(zip(shares, odds, strict=False), 1):
        if not isinstance(share, int | float) or abs(share - due / sum(odds)) > CLOSE:
            yield f"its text {number} has the share {share}, and the scores give {due / sum(odds):.6g}"
