"""Residual: the distributions at a place of a draft, and the residual after rejections, as far as a trace records them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.engine.trace import Step, Trace
from decodescope.lab.formatting.tokens import visible_token

SHOWN = 5  # tokens in a table, besides the tried ones and the rest
SMALL = 1e-4  # tops are float32: a smaller sum is rounding


@dataclass(frozen=True)
class DistributionRow:
    """One token at a place, or all others together (token None). left: its share of the residual, None: not requested"""

    token: int | None
    text: str
    p: float
    q: float
    left: float | None = None
    tried: bool = False

    def format_row(self, drawn: bool) -> str:
        """The row as text; without q where no token was drawn."""
        numbers = {"p": self.p, "q": self.q if drawn else None, "left": self.left}
        columns = [f"{name} {value:.4f}" for name, value in numbers.items() if value is not None]
        return f"{self.text:<20} {'   '.join(columns)}"


@dataclass
class _TopProbabilities:
    """Both distributions at one place: the shown tokens, and sums over the rest."""

    ids: list[int]
    p: np.ndarray  # float64 [K]
    q: np.ndarray
    rest: np.ndarray  # float64 [3]: sums of p, q and max(0, p - q)


def distribution_rows(trace: Trace, step: Step, place: int, plain: bool = False) -> list[DistributionRow]:
    """The likeliest tokens after `place`, and a row for the rest, so that p adds up to one; `plain` leaves out q."""
    law = _top_probabilities(step, place)
    if law is None:
        return []
    if plain:
        law.q, law.rest[1] = np.zeros_like(law.p), 0.0
    return _build_rows(trace, law, None, None, _tried_tokens(step, place))


def likelier_rows(rows: Sequence[DistributionRow], token: int) -> list[DistributionRow]:
    """The likeliest token and, if it is shown, `token`, where another token is likelier; else nothing."""
    mine = [row for row in rows if row.token == token]
    best = max((row for row in rows if row.token is not None), key=lambda row: row.p, default=None)
    return [] if best is None or (mine and mine[0].p >= best.p) else [best, *mine]


def residual_rows(trace: Trace, step: Step, i: int) -> tuple[list[DistributionRow], float | None]:
    """The residual of the target's distribution after trial `i`, a rejection, and its sum before normalization.

    The rows' `left` add up to one. Rows are empty, or the sum None, where the record does not hold enough.
    """
    draft, t = step.draft, step.trials
    if draft is None or t is None:
        return [], None
    place = draft.parents[t.node[i]]
    law = _top_probabilities(step, place)
    refused = [j for j in range(i + 1) if not t.ok[j] and draft.parents[t.node[j]] == place]
    tokens = [draft.tokens[t.node[j]] for j in refused]
    if law is None:
        return [], None
    if draft.proposal == "onehot":
        gone = np.isin(law.ids, tokens)
        over, rest = np.where(gone, 0.0, law.p), float(law.rest[0])
        total = 1.0 - sum(t.p[j] for j in refused)
    elif len(refused) == 1 and draft.proposal in ("iid", "without_replacement"):
        over, rest = np.maximum(law.p - law.q, 0.0), float(law.rest[2])
        total = float(over.sum()) + rest
    elif draft.proposal in ("iid", "without_replacement"):
        return _sibling_residual(trace, step, law, place, refused)
    else:
        return [], None
    if total < SMALL:  # the rule then keeps the distribution as it was
        return distribution_rows(trace, step, place), None
    scaled = over / (float(over.sum()) + rest)
    return _build_rows(trace, law, scaled, 1.0 - float(scaled.sum()), _tried_tokens(step, place)), total


def _sibling_residual(
    trace: Trace, step: Step, law: _TopProbabilities, place: int, refused: list[int]
) -> tuple[list[DistributionRow], float | None]:
    """The residual after several drawn siblings, which are subtracted one by one.
    The record then no longer has the residual of the rest. The next recorded number (a later sibling's r, or the extra
    token's interval) gives the scale."""
    draft = step.draft
    t = step.trials
    extra = step.extra
    assert draft is not None and t is not None
    r = law.p.copy()
    q = law.q.copy()
    ids = law.ids
    for k, j in enumerate(refused):
        token = draft.tokens[t.node[j]]
        over = np.maximum(r - q, 0.0)
        later = next((x for x in range(j + 1, len(t.node)) if draft.parents[t.node[x]] == place), None)
        known = None if later is None else (draft.tokens[t.node[later]], t.r[later])
        if known is None and extra is not None and (step.path[-1] if step.path else -1) == place:
            known = (extra.token, extra.high - extra.low)
        total = float(over.sum() + law.rest[2]) if k == 0 else None
        if total is None and known is not None and known[0] in ids and known[1] > SMALL:
            total = float(over[ids.index(known[0])]) / known[1]
        if total is None or total < SMALL:
            return [], None
        r = over / total
        if (
            draft.proposal == "without_replacement" and token in ids
        ):  # siblings are drawn from the residual of the earlier ones
            taken = float(q[ids.index(token)])
            if taken >= 1:
                return [], None
            q[ids.index(token)] = 0.0
            q = q / (1 - taken)
    rest = 1.0 - float(r.sum())
    if rest < -SMALL:
        return [], None
    return _build_rows(trace, law, r, max(0.0, rest), _tried_tokens(step, place)), total


def _top_probabilities(step: Step, place: int) -> _TopProbabilities | None:
    tops = step.tops
    if tops is None:
        return None
    at = np.flatnonzero(tops.places == place)
    if not len(at):
        return None
    row = int(at[0])
    there = tops.ids[row] >= 0
    p, q = tops.p[row][there].astype(np.float64), tops.q[row][there].astype(np.float64)
    return _TopProbabilities([int(x) for x in tops.ids[row][there]], p, q, tops.rest[row].astype(np.float64))


def _tried_tokens(step: Step, place: int) -> list[int]:
    """The tokens that were tried at a place, in order."""
    if step.draft is None or step.trials is None:
        return []
    return [step.draft.tokens[node] for node in step.trials.node if step.draft.parents[node] == place]


def _build_rows(
    trace: Trace, law: _TopProbabilities, left: np.ndarray | None, rest_left: float | None, tried: list[int]
) -> list[DistributionRow]:
    """The tried tokens, then the SHOWN largest, then everything else in one row."""
    p, q = law.p, law.q
    worth = (left if left is not None else 0) + p + 1e-3 * q
    first = [law.ids.index(token) for token in tried if token in law.ids]
    order = list(dict.fromkeys([*first, *(int(k) for k in np.argsort(-worth, kind="stable")[:SHOWN])]))
    other = [k for k in range(len(law.ids)) if k not in order]
    rows = []
    for k in order:
        share = None if left is None else float(left[k])
        text = visible_token(law.ids[k], trace.pieces, 16)
        rows.append(DistributionRow(law.ids[k], text, float(p[k]), float(q[k]), share, law.ids[k] in tried))
    more = None if left is None or rest_left is None else float(left[other].sum()) + rest_left
    rows.append(
        DistributionRow(
            None, "all others", float(p[other].sum() + law.rest[0]), float(q[other].sum() + law.rest[1]), more
        )
    )
    return rows
