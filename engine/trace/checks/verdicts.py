"""The decisions of one step, derived again from their record, in doubles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from ..records.events import TOP, DraftTree, Step, Tops, Trials
from ..values.formula import agree, relation
from .decisions import StepTrials

# Tops are float32: what is compared with them may differ by their rounding.
TOLERANCE = 1e-4
# low and high are sums of doubles, divided by their total
ROUNDING = 1e-12


def check_verdicts(tests: StepTrials, step: Step, counts: Counter[str]) -> Iterator[str]:
    """Problems of the trials of `step`, a phrase each."""
    counted = tests.telling.counted
    if counted is not None and not tests.matching:
        many = {"trial": len(tests), "place": len(set(tests.place)), "step": 1}.get(counted.per, 0)
        counts[counted.name] += many
    yield from _PATHS.get(tests.path, _unknown_path)(tests, step)
    for i in range(len(tests)):
        yield from _check_trial(tests, i)
    if tests.matching or tests.telling.rest:
        yield from _check_residuals(tests.draft, tests.trials, step.tops, counts)
    if not tests.matching:
        yield from _check_relations(tests, counts)


def check_extra(step: Step, tests: StepTrials | None) -> Iterator[str]:
    """The target's own token: its interval, its origin, and its probability where the tops hold it."""
    extra = step.extra
    trials = step.trials
    draft = step.draft
    assert extra is not None
    if extra.u is not None and not extra.low - ROUNDING <= extra.u < extra.high + ROUNDING:
        yield f"the extra token was drawn with u = {extra.u}, outside its interval [{extra.low}, {extra.high})"
    if tests is None or trials is None or draft is None:
        return
    if tests.telling.likeliest is not None and not tests.matching and extra.u is None:
        yield from _check_likeliest(step)
    if not (tests.telling.rest or tests.matching):
        return
    last = step.path[-1] if step.path else -1
    refused = any(
        not ok and draft.parents[node] == last for node, ok in zip(trials.node, trials.ok, strict=True)
    )
    if refused != (extra.origin in ("residual", "correction")):
        yield f"the extra token is called {extra.origin!r}, but {'a' if refused else 'no'} token was rejected there"
    p = _shown_probability(step.tops, last, extra.token, "p")
    if not refused and extra.u is not None and p is not None and not is_close(extra.high - extra.low, p):
        yield f"the interval of the extra token is {extra.high - extra.low:.6g} wide, but its probability is {p:.6g}"


def _check_likeliest(step: Step) -> Iterator[str]:
    """Check that a token chosen without chance after the path is the likeliest there, if the tops show its distribution."""
    extra, tops = step.extra, step.tops
    assert extra is not None
    last = step.path[-1] if step.path else -1
    if tops is None or last not in tops.places:
        return
    best, p = best_shown_probability(tops, last), shown_probability(tops, last, extra.token)
    if p is None or (p < best and not is_close(p, best)):
        own = "is not shown" if p is None else f"has p = {p:.6g}"
        yield f"the extra token was taken as the likeliest and {own}, but another token has p = {best:.6g} there"


def check_tops(step: Step) -> Iterator[str]:
    """Check that the distributions at the visited places add up to one, and agree with the trials about tried tokens."""
    tops = step.tops
    trials = step.trials
    draft = step.draft
    assert tops is not None
    known = tops.ids >= 0
    for column, name in enumerate("pq"):
        # [P]
        total = np.where(known, getattr(tops, name), 0).sum(axis=1, dtype=np.float64) + tops.rest[:, column]
        off = abs(total - 1) > TOLERANCE
        if name == "q":
            off &= total > TOLERANCE  # 0: nothing was proposed by chance there
        for place in np.flatnonzero(off):
            yield f"{name} after node {tops.places[place]} adds up to {total[place]:.6f}"
    if trials is not None and draft is not None and not _is_exact_matching(trials):
        for node, p in zip(trials.node, trials.p, strict=True):
            top = _shown_probability(tops, draft.parents[node], draft.tokens[node], "p")
            if top is not None and not is_close(top, p):
                yield f"node {node} was tried with p = {p:.6g}, but the distribution shown at its place gives {top:.6g}"


def _check_trial(tests: StepTrials, i: int) -> Iterator[str]:
    """Check that ok follows from the numbers of trial `i`, and that the threshold is the number compared with u, or the
    bound."""
    t = tests.trials
    num = tests.num(i)
    den = tests.den(i)
    u = t.u[i]
    ok = t.ok[i]
    threshold = t.threshold[i]
    stays, drawn = tests.stays(i), u is not None
    telling = tests.telling
    name = telling.num if telling.numbers and not tests.matching else "r"
    if not drawn and not tests.has_bound(i) and 0 < num < den:
        yield f"trial {i} was decided without a draw, although r = {num} lies between 0 and q = {den}"
    elif stays is not None and ok != stays:
        means = f"{name} = {num} and the bound {den}"
        if not tests.has_bound(i):
            means = f"u = {u}, {telling.den or 'its scale'} = {den} and {name} = {num}"
        if telling.also is not None:
            value, bound = tests.value(i, telling.also.value), tests.value(i, telling.also.bound)
            means += f" and the {telling.also.word}'s {value} against {bound}"
        yield f"trial {i} says ok = {ok}, but {means} give {not ok}"
    if drawn and not math.isclose(min(threshold, 1) * den, min(num, den), rel_tol=1e-6, abs_tol=1e-12):
        yield f"trial {i} has the threshold {threshold}, but {telling.threshold_text()} = {num / den if den else math.inf}"
    elif tests.has_bound(i) and threshold != den:
        yield f"trial {i} has the threshold {threshold}, but its bound is {den}"


def _check_relations(tests: StepTrials, counts: Counter[str]) -> Iterator[str]:
    """Check the relations that the rule declares for its record."""
    for due in tests.telling.relations:
        left, sign, right = relation(due.holds)
        for i in range(len(tests)) if tests.knobs_match(due.given) else ():
            a, b = tests.value(i, left), tests.value(i, right)
            if a is None or b is None:
                counts["relations not re-derived"] += 1
            elif not agree(a, sign, b, due.within):
                name = left if isinstance(left, str) else "one side"
                yield f"{name} at {i + 1} is {a:.6g}, but {due.holds}, which gives {b:.6g}"


def _check_longest_path(tests: StepTrials, step: Step) -> Iterator[str]:
    """Every node that can be reached is tried, and the path is one of the longest that passed."""
    depth = {-1: 0}  # of the nodes that were reached
    for node, ok in zip(tests.trials.node, tests.trials.ok, strict=True):
        if ok and tests.draft.parents[node] in depth:
            depth[node] = depth[tests.draft.parents[node]] + 1
    path = step.path or []
    if not set(path) <= depth.keys():
        yield f"the path {path} runs over a rejected node"
    elif step.extra is not None and len(path) != max(depth.values()):
        yield f"the path has {len(path)} nodes, but the longest that passed has {max(depth.values())}"


def _check_last_success(tests: StepTrials, step: Step) -> Iterator[str]:
    """The path ends at the last success; a stop token or the length limit may cut it: then there is no extra token."""
    path = step.path or []
    if len(path) != tests.last_success and not (step.extra is None and len(path) < tests.last_success):
        yield f"the path has {len(path)} nodes, but u and {tests.telling.num} give a block of {tests.last_success}"


def _check_copies(tests: StepTrials, step: Step) -> Iterator[str]:
    """A success ends a place, and the path reads as the accepted tokens do, whichever of their copies it holds."""
    tokens = tests.draft.tokens
    read = [tokens[node] for node in step.path or []]
    due = [tokens[node] for node, ok in zip(tests.trials.node, tests.trials.ok, strict=True) if ok]
    if read != (due[: len(read)] if step.extra is None else due):
        yield f"the path reads {read}, but the trials accepted {due}"


def _unknown_path(tests: StepTrials, step: Step) -> Iterator[str]:
    yield f"its rule settles the path by {tests.path[:20]!r}, which this version does not know"


def _is_exact_matching(trials: Trials) -> bool:
    """True if the trials were exact matching: their p is 0 or 1, whatever distribution the tops show."""
    return all(u is None for u in trials.u) and set(trials.p) <= {0.0, 1.0}


def _check_walk(tests: StepTrials, step: Step) -> Iterator[str]:
    """Check that the trials go down the tree, siblings in draw order, from the last accepted node."""
    trials, draft = tests.trials, tests.draft
    place = -1
    before = -1
    accepted = []
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


def _check_residuals(
    draft: DraftTree, trials: Trials, tops: Tops | None, counts: Counter[str]
) -> Iterator[str]:
    """Check that r is p for a first child, and for the next ones the rest after refused siblings, if it can be derived."""
    tried: dict[int, list[int]] = {}  # place -> trials refused there
    for i, node in enumerate(trials.node):
        place = draft.parents[node]
        refused = tried.setdefault(place, [])
        due = _residual_probability(draft, trials, tops, i, place, refused)
        if due is None:
            counts["residuals not re-derived"] += 1
        elif not is_close(due, trials.r[i]):
            yield f"trial {i} has r = {trials.r[i]:.6g}, but after {len(refused)} rejected siblings {due:.6g} is left"
        else:
            counts["residuals"] += 1
        refused.append(i)


def _residual_probability(
    draft: DraftTree, trials: Trials, tops: Tops | None, i: int, place: int, refused: list[int]
) -> float | None:
    p = trials.p[i]
    if not refused:
        return p
    if draft.proposal == "onehot":
        left = 1 - sum(trials.p[j] for j in refused)
        return p / left if left > 100 * TOLERANCE else None
    q = _shown_probability(tops, place, draft.tokens[trials.node[i]], "q")
    if len(refused) > 1 or draft.proposal == "mixed" or tops is None or q is None:
        return None
    row = int(np.flatnonzero(tops.places == place)[0])
    over = np.maximum(tops.p[row] - tops.q[row], 0, dtype=np.float64)[tops.ids[row] >= 0].sum()
    left = float(over + tops.rest[row, 2])
    return max(0.0, p - q) / left if left > 100 * TOLERANCE else None


def _shown_probability(tops: Tops | None, place: int, token: int, name: str) -> float | None:
    """The probability of `token` after `place`, if the tops show it."""
    if tops is not None:
        for row in np.flatnonzero(tops.places == place):
            for column in np.flatnonzero(tops.ids[row] == token):
                return float(getattr(tops, name)[row, column])
    return None


def best_shown_probability(tops: Tops, place: int) -> float:
    """The probability of the likeliest token after `place`, which the tops show."""
    return float(tops.p[tops.places == place].max())


def shown_probability(tops: Tops, place: int, token: int) -> float | None:
    """The probability of `token` after `place`; None: the tops neither show it nor leave it open. They list the TOP likeliest
    tokens: where these are equal, and the rest has room for another, one that they do not list may be equal to them."""
    p = _shown_probability(tops, place, token, "p")
    if p is None and place in tops.places:
        row, best = int(np.flatnonzero(tops.places == place)[0]), best_shown_probability(tops, place)
        equal = (tops.ids[row] >= 0) & (tops.p[row] >= best * (1 - 1e-6))
        p = best if equal.sum() >= TOP and tops.rest[row, 0] >= best * (1 - 1e-3) else None
    return p


def is_close(a: float, b: float) -> bool:
    """True if two probabilities are the same up to single-precision rounding."""
    return math.isclose(a, b, rel_tol=1e-3, abs_tol=TOLERANCE)


# How the trials settle the path, by the rule's word.
_PATHS: dict[str, Callable[[StepTrials, Step], Iterator[str]]] = {
    "walk": _check_walk,
    "longest": _check_longest_path,
    "last": _check_last_success,
    "copies": _check_copies,
}
