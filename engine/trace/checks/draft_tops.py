"""Checks of what a step records of the draft's own distributions: places, order, sums, and the rank of the token that came."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..records.draft_tops import DraftTops, tokens_by_place
from ..records.events import Step

TOLERANCE = 1e-4  # of log-probabilities in float32


def check_draft_tops(step: Step) -> Iterator[str]:
    """Check `Step.draft_tops` against the draft, the path and itself."""
    tops, draft = step.draft_tops, step.draft
    if tops is None:
        return
    if draft is None:
        yield "it records the draft's distributions, and no draft"
        return
    came = tokens_by_place(draft.tokens, step.path or [], None if step.extra is None else step.extra.token)
    tried = set(draft.parents)
    places = tops.places.tolist()
    if len(set(places)) < len(places):
        yield "draft_tops names a place twice"
    for row, place in enumerate(places):
        if place not in came or place not in tried:
            yield f"draft_tops names node {place}, where no drafted token was tried or none came"
            continue
        for problem in _check_row(tops, row, came[place]):
            yield f"draft_tops after node {place}: {problem}"


def _check_row(tops: DraftTops, row: int, token: int) -> Iterator[str]:
    """Check one place: `token` came there."""
    shown = tops.ids[row] >= 0
    ids, logp = tops.ids[row][shown], tops.logp[row][shown].astype(np.float64)
    rank, own = int(tops.rank[row]), float(tops.came[row])
    if not shown.any() or not shown[: shown.sum()].all() or len(set(ids.tolist())) < len(ids):
        yield "its ids are none, not in front of the padding, or not different"
        return
    if not (np.isfinite(logp).all() and (tops.logp[row][~shown] == -np.inf).all()):
        yield "a token is listed with probability 0, or a padded place with another"
    if (np.diff(logp) > 0).any() or np.exp(logp).sum() > 1 + TOLERANCE:
        yield "its probabilities rise, or add up to more than 1"
    at = np.flatnonzero(ids == token)
    if len(at):
        due = float(logp[at[0]])
        first, last = int((logp > due + TOLERANCE).sum()) + 1, int((logp >= due - TOLERANCE).sum())
        if not first <= rank <= last or abs(own - due) > TOLERANCE:
            yield f"token {token} came, with rank {first} in its list, and rank {rank} is recorded"
    elif own > logp[-1] + TOLERANCE or (rank <= len(ids) and own < logp[-1] - TOLERANCE):
        yield f"token {token} came, which its list lacks, and rank {rank} with {own:.4g} nats is recorded"
