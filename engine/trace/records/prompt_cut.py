"""Cut: what a context left of a prompt, why, and the one rule by which contexts leave tokens out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..values.limits import TraceError
from ..values.numbers import validate_array, validate_counts, validate_ids, validate_lengths

LEFT, SCORE, NEAR, STAYS, OUT = range(5)
READ = (SCORE, NEAR, STAYS)  # of a token that the target read


@dataclass
class Cut:
    """What prompt compression left of the prompt: the target read only these tokens.

    kept:    int32 [k], ascending: places in the header's prompt of the tokens that were read, including the last
    unit:    what was chosen as a whole: "token", "character" (of several tokens), "phrase" or "sentence"
    positions: "compact": token i of `kept` was read at position i, and the text continues at k; `n` of steps, evictions and all
             other positions count these
    layers:  the layers that were used to choose, of the lane that scored
    scores:  float32 [n], the score of each token of the prompt (level "decisions", at most 65,536 of them)
    lookahead: ids that a draft model wrote after the prompt, if their attention counted too
    held_bytes: peak bytes of the cache of the scoring passes, from its storages; it was freed before the target read
    reason:  uint8 [n]: 0 the token was left out for its score, 1 it was read for its score, 2 as a neighbour of one, 3 it
             always stays (the question, marks of a chat, the last tokens), 4 it was removed before tokens were scored
    budget:  tokens to read, including those that always stay
    units:   int32 [u], the first token of each unit, if units are not single tokens;  worth: float32 [u], the score of each
    parts:   int32 [s], the first token of each part of the prompt with its own share of the budget, if there are several
    near:    units kept around a chosen one, itself counted, the nearest first
    """

    kept: np.ndarray
    unit: str = "token"
    positions: str = "compact"
    layers: list[int] | None = None
    scores: np.ndarray | None = None
    lookahead: list[int] | None = None
    held_bytes: int = 0
    reason: np.ndarray | None = None
    budget: int | None = None
    units: np.ndarray | None = None
    worth: np.ndarray | None = None
    parts: np.ndarray | None = None
    near: int = 1


def shorten(
    scores: np.ndarray, stays: np.ndarray, budget: int, *, out: np.ndarray | None = None, **more: Any
) -> Cut:
    """The cut of a prompt with tokens of the values `scores` (float32 [n]). stays: bool [n], what is read in any case; out:
    bool [n], what never is;  more: further fields of the cut."""
    settled = np.where(stays, STAYS, LEFT).astype(np.uint8)
    if out is not None:
        settled[out & ~stays] = OUT
    cut = Cut(np.zeros(0, np.int32), scores=scores, reason=settled, budget=budget, **more)
    cut.reason = reasons_under_budget(cut, budget)
    cut.kept = read_indices(cut.reason)
    return cut


def read_indices(reason: np.ndarray) -> np.ndarray:
    """int32 [k]: the tokens that these reasons let be read."""
    return np.flatnonzero(np.isin(reason, READ)).astype(np.int32)


def reasons(cut: Cut, n: int) -> np.ndarray:
    """uint8 [n]: the reasons of a prompt of `n` tokens; where none are recorded, what was read counts as read for its score."""
    if cut.reason is not None:
        return cut.reason
    plain = np.full(n, LEFT, np.uint8)
    plain[cut.kept] = SCORE
    return plain


def reasons_under_budget(cut: Cut, budget: int) -> np.ndarray:
    """uint8 [n]: why each token would be read or not under another budget, by what is recorded: in each part the units that are
    worth most, of equals the first, with their neighbours, until they are as many tokens as are due there. A unit is read as a
    whole; neighbours are, as far as there is room."""
    assert cut.reason is not None and cut.scores is not None
    n = len(cut.reason)
    reason = np.where(cut.reason >= STAYS, cut.reason, LEFT).astype(np.uint8)
    starts = [*range(n + 1)] if cut.units is None else [*cut.units.tolist(), n]
    worth = cut.scores if cut.worth is None else cut.worth
    bounds = [0] if cut.parts is None else cut.parts.tolist()
    dues = part_budgets(reason == LEFT, bounds, budget - int((reason == STAYS).sum()))
    order = np.argsort(-worth, kind="stable")
    for first, behind, due in zip(bounds, [*bounds[1:], n], dues, strict=True):
        for u in (u for u in order.tolist() if first <= starts[u] < behind):
            if due <= 0:
                break
            due -= _take_unit(reason, starts, u, cut.near, due)
    return reason


def part_budgets(free: np.ndarray, bounds: Sequence[int], due: int) -> list[int]:
    """How many of `due` tokens each part gets; the parts begin at the tokens `bounds`. A part gets its share of the `free`
    tokens (bool [n]), to less than one token, and all parts get `due`."""
    before = [0, *np.cumsum(free).tolist()]
    at = [max(0, due) * before[x] // max(1, before[-1]) for x in (*bounds, len(free))]
    return [b - a for a, b in pairwise(at)]


def _take_unit(reason: np.ndarray, starts: Sequence[int], u: int, near: int, due: int) -> int:
    """Take unit u and its neighbours, each as a whole: how many tokens came that had not. starts: the first token of each unit,
    and the number of tokens"""
    taken = 0
    for v in _neighbours(u, near, len(starts) - 1):
        if taken < due:
            new = np.flatnonzero(reason[starts[v] : starts[v + 1]] == LEFT) + starts[v]
            reason[new] = SCORE if v == u else NEAR
            taken += len(new)
    return taken


def _neighbours(at: int, near: int, n: int) -> list[int]:
    """The `near` places around one of n, nearest first, the left one of two equally near; an end replaces places beyond it."""
    reach = sorted(range(-((near - 1) // 2), near // 2 + 1), key=lambda x: (abs(x), x))
    return [min(max(at + x, 0), n - 1) for x in reach]


def validate_cut(cut: Cut, n: int, vocab: int) -> None:
    """Refuse a cut of a prompt of `n` tokens with impossible numbers."""
    validate_array(cut.kept, "cut.kept", 1, "iu")
    if (
        not cut.kept.size
        or int(cut.kept[-1]) != n - 1
        or cut.kept[0] < 0
        or (np.diff(cut.kept.astype(np.int64)) <= 0).any()
    ):
        raise TraceError(f"cut.kept does not rise within a prompt of {n} tokens up to its last")
    if cut.positions != "compact":
        raise TraceError(
            f"cut.positions is {cut.positions[:20]!r}, which this version does not know: open it with a newer one"
        )
    for name, x, kind, length in (
        ("scores", cut.scores, "f", n),
        ("reason", cut.reason, "iu", n),
        ("worth", cut.worth, "f", 0 if cut.units is None else len(cut.units)),
    ):
        if x is not None:
            validate_array(x, f"cut.{name}", 1, kind)
            validate_lengths(length, "cut", **{name: x.tolist()})
    for name, x in (("units", cut.units), ("parts", cut.parts)):
        if x is not None:
            validate_array(x, f"cut.{name}", 1, "iu")
            if not x.size or x[0] != 0 or x[-1] >= n or (np.diff(x.astype(np.int64)) <= 0).any():
                raise TraceError(f"cut.{name} does not rise from 0 within a prompt of {n} tokens")
    if cut.reason is not None and cut.reason.max() > 4:
        raise TraceError(
            f"cut.reason is {cut.reason.max()}, which this version does not know: open it with a newer one"
        )
    if not 1 <= cut.near <= 1 << 16:
        raise TraceError(f"cut.near is {cut.near}: a token brings 1 to {1 << 16}")
    validate_counts([cut.budget or 0], "cut.budget")
    validate_counts([cut.held_bytes, *(cut.layers or [])], "cut")
    validate_ids(cut.lookahead or [], vocab, "cut.lookahead")


def check_cut(cut: Cut) -> Iterator[str]:
    """Problems of a cut with arrays of the right lengths: the rule is applied again to what is recorded."""
    if cut.reason is None:
        return
    if not np.array_equal(read_indices(cut.reason), cut.kept):
        yield f"the prompt's cut reads {len(cut.kept)} tokens, and by their reasons it would be {len(read_indices(cut.reason))}"
    if cut.scores is None or cut.budget is None or (cut.units is not None and cut.worth is None):
        return
    wrong = np.flatnonzero(reasons_under_budget(cut, cut.budget) != cut.reason)
    if wrong.size:
        yield f"by its scores and a budget of {cut.budget}, token {wrong[0]} of the prompt has another reason than is recorded"
