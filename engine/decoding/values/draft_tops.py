"""DraftTops of a step: from the logits that a draft was chosen from to the few numbers that a trace keeps of them."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.trace.records.draft_tops import DraftTops, tokens_by_place
from decodescope.engine.trace.records.events import TOP

from .draft import Draft, Verdict
from .tops import settle_ties, top_values


def draft_tops_record(draft: Draft, verdict: Verdict, vocab: int) -> DraftTops | None:
    """The draft's best tokens at each tried place, and the rank of the token that came; None if no logits were kept.

    vocab: the target's; what a draft model has beyond it is left out
    Operations over the vocabulary are few and cover all places at once; their results come to the CPU together.
    """
    if not draft.logits:
        return None
    came = tokens_by_place(draft.tokens, verdict.path, verdict.token)
    places = [x for x in came if x in draft.logits and draft.children(x)]
    if not places:
        return None
    rows = torch.stack([draft.logits[x] for x in places])  # [P, V]
    if rows.shape[1] > vocab:
        rows = rows[:, :vocab]
    if rows.dtype.itemsize < 4:
        rows = rows.float()
    vocab = rows.shape[1]
    wanted = [came[x] for x in places]
    values, ids, first, own, ranks = _read_numbers(rows, [min(x, vocab - 1) for x in wanted])
    ids, values = settle_ties(rows, ids, values, least=-math.inf)
    tops, logps = [], []
    ranked, owned = [], []
    for i, token in enumerate(wanted):
        known = [x for x in values[i] if x > -math.inf]
        padding = min(TOP, vocab) - len(known)
        total = known[0] - math.log(first[i])  # log sum exp
        tops.append(ids[i][: len(known)] + [-1] * padding)
        logps.append([min(x - total, 0.0) for x in known] + [-math.inf] * padding)
        ranked.append(ranks[i] if token < vocab else vocab + 1)
        owned.append(min(own[i] - total, 0.0) if token < vocab else -math.inf)
    return DraftTops(
        np.array(places, np.int32),
        np.array(tops, np.int32),
        np.array(logps, np.float32),
        np.array(ranked, np.int32),
        np.array(owned, np.float32),
    )


def _read_numbers(
    rows: Tensor, tokens: list[int]
) -> tuple[list[list[float]], list[list[int]], list[float], list[float], list[int]]:
    """Of each row of [P, V] and its token: the largest values and their ids, the probability of the first of these, the token's
    value, and its rank."""
    best, ids = top_values(rows)
    law = rows.softmax(-1)
    if rows.is_cpu:  # numpy reads single numbers in a tenth of the time
        values, likely = best.tolist(), ids.tolist()
        row, odds = rows.numpy(), law.numpy()
        first = [float(odds[i, x[0]]) for i, x in enumerate(likely)]
        theirs = [float(row[i, x]) for i, x in enumerate(tokens)]
        # a token among the best needs no count over the vocabulary
        ranks = [
            1 + (sum(y > x for y in shown) if x >= shown[-1] else int(np.count_nonzero(row[i] > x)))
            for i, (x, shown) in enumerate(zip(theirs, values, strict=True))
        ]
        return values, likely, first, theirs, ranks
    own = rows.gather(1, torch.tensor(tokens, device=rows.device)[:, None])  # [P, 1]
    rank = (rows > own).sum(1, keepdim=True) + 1
    # one transfer; whole numbers below 2^24 are exact in float32
    joined = torch.cat(
        [x.to(rows.dtype) for x in (best, law.gather(1, ids[:, :1]), own, rank, ids)], 1
    ).tolist()
    k = best.shape[1]
    return (
        [x[:k] for x in joined],
        [[int(y) for y in x[k + 3 :]] for x in joined],
        [x[k] for x in joined],
        [x[k + 1] for x in joined],
        [int(x[k + 2]) for x in joined],
    )
