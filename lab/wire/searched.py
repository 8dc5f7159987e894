"""Searched: what a view is told of a tree search over texts: its tree, and by what each text was judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from decodescope.engine.trace.encoding.forks import method_at
from decodescope.engine.trace.records.events import Header, Piece, Step
from decodescope.engine.trace.records.pieces import join

ROOM = 1024  # bytes of the tree of a step that is not asked for
LONGEST = 96  # characters of what a text goes on with behind its node


def searched(header: Header, step: Step, text: Callable[[int], Piece], whole: bool) -> dict[str, Any]:
    """search: {"count": of texts, "best": which was written, from 1, "why": it ended, "c", "base", "nodes": [[parent, token id,
    text, why it is closed at the end or "", [[token id, text, probability] of each candidate]], ...], the first without token,
    "texts": [[what stands behind the node, which tests it passes, tokens read for it], ...], that of node 1 first}, or nothing.
    Unless `whole`, a tree above ROOM is left out, and "few" says so."""
    record = step.search
    if record is None:
        return {}
    knobs = method_at(header, step.step).get("strategy") or {}
    message: dict[str, Any] = {"count": len(record.rollouts), "best": record.best + 1, "why": record.why}
    message |= {"c": knobs.get("c", 0.0), "base": knobs.get("base", 1.0)}
    columns = zip(record.parents, record.tokens, record.closed, record.offers, record.priors, strict=True)
    nodes = [
        [
            parent,
            token,
            "" if token < 0 else text(token),
            closed,
            [[x, text(x), p] for x, p in zip(ids, priors, strict=True)],
        ]
        for parent, token, closed, ids, priors in columns
    ]
    texts = []
    for x in record.rollouts:
        rest = x.tokens[len(record.path(x.node)) :]
        texts.append([join(rest, {k: text(k) for k in rest})[:LONGEST], [int(ok) for ok in x.passed], x.read])
    more = {"nodes": nodes, "texts": texts}
    if (
        not whole
        and len(json.dumps(more, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")) > ROOM
    ):
        return {"search": message, "few": True}
    return {"search": message | more}
