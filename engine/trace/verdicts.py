"""The decisions of one step, derived again from what its record says about them, in doubles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .events import DraftTree, Step, Tops, Trials

# Tops are float32: what is compared with them may differ by their rounding.
TOLERANCE = 1e-4
# low and high are sums of doubles, divided by their total
ROUNDING = 1e-12


def check_verdicts(step: Step, rule: str, counts: Counter[str]) -> list[str]:
    """What is wrong with the trials of `step` under `rule`, a phrase each; nothing for a rule that is not in RULES."""
    return list(RULES[rule](step, counts)) if rule in RULES else []


def check_extra(step: Step, rule: str) -> Iterator[str]:
    """The target's own token: its interval, its origin, and its probability where the tops hold it."""
    extra, trials, draft = step.extra, step.trials, step.draft
    assert extra is not None
    if extra.u is not None and not extra.low - ROUNDING <= extra.u < extra.high + ROUNDING:
        yield f"the extra token was drawn with u = {extra.u}, outside its interval [{extra.low}, {extra.high})"
    if rule != "lossless" or trials is None or draft is None:
        return
    last = step.path[-1] if step.path else -1
    refused = any(not ok and draft.parents[node] == last for node, ok in zip(trials.node, trials.ok, strict=True))
    if refused != (extra.origin in ("residual", "correction")):
        yield f"the extra token is called {extra.origin!r}, but {'a' if refused else 'no'} token was refused there"
    p = _top(step.tops, last, extra.token, "p")
    if not refused and extra.u is not None and p is not None and not _near(extra.high - extra.low, p):
        yield f"the interval of the extra token is {extra.high - extra.low:.6g} wide, but its probability is {p:.6g}"


def check_tops(step: Step) -> Iterator[str]:
    """The laws at the visited places add up to one, and say of tried tokens what the trials say."""
    tops, trials, draft = step.tops, step.trials, step.draft
    assert tops is not None
    known = tops.ids >= 0
    for column, name in enumerate("pq"):
        total = np.where(known, getattr(tops, name), 0).sum(axis=1, dtype=np.float64) + tops.rest[:, column]  # [P]
        off = abs(total - 1) > TOLERANCE
        if name == "q":
            off &= total > TOLERANCE  # 0: nothing was proposed by chance there
        for place in np.flatnonzero(off):
            yield f"{name} after node {tops.places[place]} adds up to {total[place]:.6f}"
    if trials is not None and draft is not None and not _greedy(trials):
        for node, p in zip(trials.node, trials.p, strict=True):
            top = _top(tops, draft.parents[node], draft.tokens[node], "p")
            if top is not None and not _near(top, p):
                yield f"node {node} was tried with p = {p:.6g}, but the law shown at its place gives {top:.6g}"


def _lossless(step: Step, counts: Counter[str]) -> Iterator[str]:
    """ok is exactly `u * q < r`; without a draw, whether r leaves no doubt."""
    trials = step.trials
    if trials is None:
        return
    yield from _walk(step)
    for i, (r, q, u, ok) in enumerate(zip(trials.r, trials.q, trials.u, trials.ok, strict=True)):
        if u is None and 0 < r < q:
            yield f"trial {i} was decided without a draw, although r = {r} lies between 0 and q = {q}"
        elif ok != ((u * q < r) if u is not None else r > 0):
            yield f"trial {i} says ok = {ok}, but u = {u}, q = {q} and r = {r} give {not ok}"
        threshold = trials.threshold[i]
        if u is not None and not math.isclose(min(threshold, 1) * q, min(r, q), rel_tol=1e-6, abs_tol=1e-12):
            yield f"trial {i} has the threshold {threshold}, but r / q = {r / q if q else math.inf}"
    if step.draft is not None:
        yield from _residuals(step.draft, trials, step.tops, counts)


def _typical(step: Step, counts: Counter[str]) -> Iterator[str]:
    """ok is exactly `p > threshold`, and the path is one of the longest that passed."""
    trials, draft = step.trials, step.draft
    if trials is None or draft is None:
        return
    if step.rule is None:  # under a greedy law every rule is exact matching
        yield from _lossless(step, counts)
        return
    depth = {-1: 0}  # of the nodes that were reached
    for i, (node, p, threshold, ok) in enumerate(zip(trials.node, trials.p, trials.threshold, trials.ok, strict=True)):
        if ok != (p > threshold):
            yield f"trial {i} says ok = {ok}, but p = {p} and the threshold {threshold} give {not ok}"
        if ok and draft.parents[node] in depth:
            depth[node] = depth[draft.parents[node]] + 1
    path = step.path or []
    if not set(path) <= depth.keys():
        yield f"the path {path} runs over a refused node"
    elif step.extra is not None and len(path) != max(depth.values()):
        yield f"the path has {len(path)} nodes, but the longest that passed has {max(depth.values())}"


def _block(step: Step, counts: Counter[str]) -> Iterator[str]:
    """w_i = min(1, w_{i-1} p_i / q_i); the block ends at the largest i with u_i < h_i, counted from 1."""
    rule, trials = step.rule, step.trials
    if rule is None:
        yield from _lossless(step, counts)
        return
    h, w = _numbers(rule.get("h")), _numbers(rule.get("w"))
    u = _numbers(rule.get("u", trials.u if trials is not None else None))
    if h is None or u is None or len(h) != len(u):
        counts["blocks not re-derived"] += 1
        return
    counts["blocks"] += 1
    passed = [a < b for a, b in zip(u, h, strict=True)]
    length = max((i + 1 for i, one in enumerate(passed) if one), default=0)
    path = step.path or []
    # a stop token or the length limit may cut the block; then there is no extra token
    if len(path) != length and not (step.extra is None and len(path) < length):
        yield f"the path has {len(path)} nodes, but u and h give a block of {length}"
    if trials is not None and trials.ok != passed:
        yield f"the trials say ok = {trials.ok}, but u and h give {passed}"
    if trials is not None and w is not None and len(w) == len(trials.p) + 1 == len(h) + 1:
        for i, (p, q) in enumerate(zip(trials.p, trials.q, strict=True)):
            due = min(1.0, w[i] * p / q) if q else 1.0
            if not _near(due, w[i + 1]):
                yield f"w at {i + 1} is {w[i + 1]:.6g}, but w before it, p and q give {due:.6g}"


def _leniency(step: Step, counts: Counter[str]) -> Iterator[str]:
    """ok is exactly `u * q < f`, f being what the rule made of r."""
    if step.rule is None:
        yield from _lossless(step, counts)
        return
    trials, f = step.trials, _numbers(step.rule.get("f"))
    if trials is None:
        return
    yield from _walk(step)
    if f is None or len(f) != len(trials.ok):
        counts["lenient trials not re-derived"] += len(trials.ok)
        return
    counts["lenient trials"] += len(f)
    for i, (raised, r, q, u, ok) in enumerate(zip(f, trials.r, trials.q, trials.u, trials.ok, strict=True)):
        if u is not None and ok != (u * q < raised):
            yield f"trial {i} says ok = {ok}, but u = {u}, q = {q} and f = {raised} give {not ok}"
        if raised < r * (1 - 1e-6):
            yield f"trial {i} has f = {raised}, less than r = {r}: leniency never makes the test harder"


def _spectr(step: Step, counts: Counter[str]) -> Iterator[str]:
    """ok is exactly `u * (rho q) < p`, rho being the place's; a success ends the place. Copies of a token are one token."""
    trials, draft = step.trials, step.draft
    if trials is None or draft is None:
        return
    if step.rule is None:
        yield from _lossless(step, counts)
        return
    plans = {name: _numbers(step.rule.get(name)) for name in ("alive", "rho", "b", "A")}
    rho, alive = plans["rho"], plans["alive"]
    kept = [node for node, ok in zip(trials.node, trials.ok, strict=True) if ok]
    if rho is None or alive is None or len(rho) != len(alive) or len(rho) < len(kept):
        counts["k-SEQ places not re-derived"] += 1
        return
    counts["k-SEQ places"] += len(rho)
    place = 0
    for i, (p, q, u, ok) in enumerate(zip(trials.p, trials.q, trials.u, trials.ok, strict=True)):
        if place >= len(rho):
            yield f"trial {i} is at place {place}, but the rule planned {len(rho)}"
            return
        if u is not None and ok != (u * (rho[place] * q) < p):
            yield f"trial {i} says ok = {ok}, but u = {u}, rho = {rho[place]}, q = {q} and p = {p} give {not ok}"
        place += ok
    for k, r, b, share in zip(*(plans[name] or [] for name in ("alive", "rho", "b", "A")), strict=False):
        if not 1 <= r <= k or not math.isclose(share, 1 - (1 - b) ** k, abs_tol=1e-9) or share > r * b + 1e-9:
            yield f"a place has k = {k}, rho = {r}, b = {b} and A = {share}, which are no plan of k-SEQ"
    path = step.path or []
    tokens, due = [draft.tokens[node] for node in path], [draft.tokens[node] for node in kept]
    if tokens != (due[: len(path)] if step.extra is None else due):
        yield f"the path reads {tokens}, but the trials accepted {due}"


def _judge(step: Step, counts: Counter[str]) -> Iterator[str]:
    """ok is `u * q < p`, or p = 1 under a greedy law, or else j > t; the chain ends at the first that is not."""
    trials = step.trials
    if trials is None:
        return
    yield from _walk(step)
    j = _numbers((step.rule or {}).get("j"))
    t = (step.rule or {}).get("t")
    if j is None or len(j) != len(trials.ok) or not isinstance(t, int | float):
        counts["judged trials not re-derived"] += len(trials.ok)
        return
    counts["judged trials"] += len(j)
    for i, (x, p, q, u, ok) in enumerate(zip(j, trials.p, trials.q, trials.u, trials.ok, strict=True)):
        if ok != ((p > 0 if u is None else u * q < p) or x > t):
            yield f"trial {i} says ok = {ok}, but u = {u}, q = {q}, p = {p} and the judge's {x} against {t} give {not ok}"


def _greedy(trials: Trials) -> bool:
    """Whether the trials were exact matching: their p is 0 or 1, whatever law the tops show."""
    return all(u is None for u in trials.u) and set(trials.p) <= {0.0, 1.0}


def _numbers(values: Any) -> list[float] | None:
    """`values` if it is a list of numbers: what a rule adds to the record has no declared type."""
    return values if isinstance(values, list) and all(isinstance(one, int | float) for one in values) else None


def _walk(step: Step) -> Iterator[str]:
    """The trials go down the tree, siblings in draw order, from where the last accepted node stands."""
    trials, draft = step.trials, step.draft
    if trials is None or draft is None:
        return
    place, before, accepted = -1, -1, []
    for i, (node, ok) in enumerate(zip(trials.node, trials.ok, strict=True)):
        if draft.parents[node] != place:
            yield f"trial {i} is of node {node}, which is no child of node {place}, the last accepted one"
            return
        if node <= before:
            yield f"trial {i} is of node {node}, after its sibling {before}: siblings are tried in draw order"
        before = node
        if ok:
            accepted.append(node)
            place, before = node, -1
    if step.path is not None:
        cut = step.extra is None  # a stop token or the length limit
        if step.path != (accepted[: len(step.path)] if cut else accepted):
            yield f"the path is {step.path}, but the trials accepted {accepted}"


def _residuals(draft: DraftTree, trials: Trials, tops: Tops | None, counts: Counter[str]) -> Iterator[str]:
    """r is p for a first child; for the next one, what refusing the siblings before it left, where that can be told."""
    tried: dict[int, list[int]] = {}  # place -> trials refused there
    for i, node in enumerate(trials.node):
        place = draft.parents[node]
        refused = tried.setdefault(place, [])
        due = _residual(draft, trials, tops, i, place, refused)
        if due is None:
            counts["residuals not re-derived"] += 1
        elif not _near(due, trials.r[i]):
            yield f"trial {i} has r = {trials.r[i]:.6g}, but after {len(refused)} refused siblings {due:.6g} is left"
        else:
            counts["residuals"] += 1
        refused.append(i)


def _residual(draft: DraftTree, trials: Trials, tops: Tops | None, i: int, place: int, refused: list[int]) -> float | None:
    p = trials.p[i]
    if not refused:
        return p
    if draft.proposal == "onehot":
        left = 1 - sum(trials.p[j] for j in refused)
        return p / left if left > 100 * TOLERANCE else None
    q = _top(tops, place, draft.tokens[trials.node[i]], "q")
    if len(refused) > 1 or draft.proposal == "mixed" or tops is None or q is None:
        return None
    row = int(np.flatnonzero(tops.places == place)[0])
    over = np.maximum(tops.p[row] - tops.q[row], 0, dtype=np.float64)[tops.ids[row] >= 0].sum()
    left = float(over + tops.rest[row, 2])
    return max(0.0, p - q) / left if left > 100 * TOLERANCE else None


def _top(tops: Tops | None, place: int, token: int, name: str) -> float | None:
    """The probability of `token` after `place`, if the tops show it."""
    if tops is not None:
        for row in np.flatnonzero(tops.places == place):
            for column in np.flatnonzero(tops.ids[row] == token):
                return float(getattr(tops, name)[row, column])
    return None


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-3, abs_tol=TOLERANCE)


# The rules whose verdicts can be derived again, by the name that the header gives them.
RULES: dict[str, Callable[[Step, Counter[str]], Iterator[str]]] = {
    "lossless": _lossless,
    "typical": _typical,
    "block": _block,
    "leniency": _leniency,
    "spectr": _spectr,
    "judge": _judge,
}
