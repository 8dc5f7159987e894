"""Cascaded: what a view is told of a step in which a small model answered, and a router kept that or asked the large one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from decodescope.engine.trace.details.answered import Candidates, mean_entropy, mean_logp
from decodescope.engine.trace.records.events import Piece, Step
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.decision.routed import BITS, MEANS

ROOM = 1536  # bytes of the answers of a step that is not asked for
LONGEST = 240  # characters of an answer
_ALONE: dict[
    str, Callable[[Candidates, int], float]
] = {  # what an answer has by itself, by the router's word
    "votes": lambda record, k: record.votes[k],
    "likelihood": lambda record, k: math.exp(mean_logp(record.answers[k])),
    "entropy": lambda record, k: mean_entropy(record.answers, k),
}


def own_score(record: Candidates, k: int) -> float | None:
    """What decides, of answer k by itself; None: its router judges the chosen one alone."""
    if k == record.chosen:
        return record.score
    return _ALONE[record.by](record, k) if record.by in _ALONE else None


def cascaded(step: Step, text: Callable[[int], Piece], whole: bool) -> dict[str, Any]:
    """cascade: {"number": what the score is, "rule": a sentence, "score", "tau", "above": whether a score of tau or more keeps,
    "kept", "chosen", "asked": answers of the small model, "answers": [[text, score by itself or null, form, whether it ended,
    tokens], ...], "compared": [[whether the reference is right, weight, judged], ...], "wrong": chance that the small model is,
    where that was bet on}, or nothing. Unless `whole`, answers and references above ROOM are left out, and "few" says so."""
    record = step.candidates
    if record is None:
        return {}
    number, rule = MEANS.get(record.by, (BITS[0].lstrip("−"), BITS[1]))
    message: dict[str, Any] = {
        "number": number,
        "rule": rule,
        "score": record.score,
        "tau": record.tau,
        "above": int(record.above),
        "kept": int(record.kept),
        "chosen": record.chosen,
        "asked": len(record.answers),
    }
    if record.bet is not None:
        message["wrong"] = record.bet.wrong
    answers = [
        [
            join(x.tokens, {i: text(i) for i in x.tokens})[:LONGEST],
            own_score(record, k),
            x.form,
            int(x.ended),
            len(x.tokens),
        ]
        for k, x in enumerate(record.answers)
    ]
    more = {"answers": answers, "compared": [[int(x.right), x.weight, x.judged] for x in record.compared]}
    if (
        not whole
        and len(json.dumps(more, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")) > ROOM
    ):
        return {"cascade": message, "few": True}
    return {"cascade": message | more}
