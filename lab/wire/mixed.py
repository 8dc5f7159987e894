"""Mixed: what a view is told of hypotheses, and of those that were scored by a model and by n-grams, and read as one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from decodescope.engine.trace.records.events import Beams

TAIL = 16  # tokens of a hypothesis that ended, counted from its end
LEFT = 6  # extensions that were left, the best of them


def beamed(b: Beams, texts: Callable[[list[int]], list[Any]]) -> dict[str, Any]:
    """The hypotheses of a step, with group and fine where there are groups; of those that ended in it how many tokens they
    have, and the last of them; and of the extensions that were left the best: parent, score, token. texts: ids -> tokens as
    views have them"""
    ended = [
        {"score": one["score"], "n": len(one["tokens"]), "tail": texts(one["tokens"][-TAIL:])}
        for one in b.finished
    ]
    least = sorted(b.pruned or [], key=lambda row: -row[2])[:LEFT]
    words = texts([int(token) for _, token, _ in least])
    left = [[int(parent), score, word] for (parent, _, score), word in zip(least, words, strict=True)]
    more = {"left": left, "groups": b.groups, "fines": b.penalties}
    always = {"parents": b.parents, "scores": b.scores, "tokens": texts(b.tokens), "ended": ended, **mixed(b)}
    return always | {name: x for name, x in more.items() if x}


def mixed(beams: Beams) -> dict[str, Any]:
    """For each hypothesis the model's probability of its last token, that of the n-grams, and its share in what the next pass
    reads; empty where the step names no candidates."""
    if beams.candidates is None:
        return {}
    rows = {(int(draft), int(token)): (p, q) for draft, token, p, q, _ in beams.candidates}
    best = max(beams.scores, default=0.0)
    odds = [math.exp(score - best) for score in beams.scores]
    kept = zip(beams.parents, beams.tokens, odds, strict=True)
    return {"mixed": [(*rows.get((parent, token), (None, None)), x / sum(odds)) for parent, token, x in kept]}
