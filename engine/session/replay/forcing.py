"""Forcing: a verdict in which the user fixed some nodes beforehand, to see what would have followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.acceptance import AcceptanceRule, Cursor
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import ROOT, Draft, Origin, Trial, Verdict

X = TypeVar("X")


def forced_path(parents: Sequence[int], forced: Mapping[int, bool]) -> list[int]:
    """The path from the root to the deepest node that is forced to be accepted.

    Raises ValueError, one sentence, where the forced verdicts contradict each other or name no node. parents: of the draft's
    nodes
    """
    for node in forced:
        if not 0 <= node < len(parents):
            raise ValueError(
                f"There is no drafted node {node + 1}: the step drafted {len(parents)}, counted from 1."
            )
    paths = {node: _path(parents, node) for node, ok in forced.items() if ok}
    deepest = max(paths.values(), key=len, default=[])
    for node in paths:
        if node not in deepest:
            raise ValueError(
                f"Nodes {node + 1} and {deepest[-1] + 1} cannot both be accepted: neither continues the other."
            )
    for node in (x for x, ok in forced.items() if not ok):
        if node in deepest:
            raise ValueError(
                f"Node {node + 1} is on the way to node {deepest[-1] + 1}, so it cannot be rejected as well."
            )
        place = parents[node]
        later = (
            place in [ROOT, *deepest[:-1]]
            and bool(deepest)
            and node > next(x for x in deepest if parents[x] == place)
        )
        aside = place not in [ROOT, *deepest] and bool(deepest) and deepest[-1] not in _path(parents, place)
        if later or aside:
            raise ValueError(
                f"Node {node + 1} is not reached when node {deepest[-1] + 1} is accepted: leave it out."
            )
    return deepest


def _path(parents: Sequence[int], node: int) -> list[int]:
    path = [node]
    while parents[path[0]] != ROOT:
        path.insert(0, parents[path[0]])
    return path


class ForcedAcceptance(AcceptanceRule):
    """`rule`, after some nodes of one draft were fixed: `forced`, node -> whether it is accepted.

    The path to the deepest accepted node is taken without a test, and the rule decides on what grows from there. A rejected
    node is removed from the draft, together with all that continues it. Its token is removed from the target's distribution at
    its place, as a refusal removes a token that was chosen without chance. So the text no longer follows a distribution:
    forcing is lossy.
    """

    title = "Forced"
    lossless = False
    changes = "verdicts were forced"

    def __init__(self, rule: AcceptanceRule, forced: Mapping[int, bool]):
        self.rule, self.forced = rule, dict(forced)

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        """The rule's verdict below the forced ones. Raises ValueError for nodes that this draft does not have."""
        path = forced_path(draft.parents, self.forced)
        gone = [node for node, ok in self.forced.items() if not ok]
        if draft.acceptable is not None and (bad := [x for x in (*path, *gone) if not draft.acceptable[x]]):
            raise ValueError(
                f"Node {bad[0] + 1} rides along for later drafts and is never accepted, so it cannot be forced."
            )
        trials: list[Trial] = []
        places: list[tuple[int, Tensor | None]] = []
        start = at
        for node in path:
            trials.append(_trial(draft, at, node, True))
            places.append((at.node, None if at.greedy else at.probs))
            at = at.descend(node)
        nodes = _descendants(draft, at.node, gone)
        verdict = self.rule.verify(
            _subdraft(draft, nodes),
            at.reroot(_subdraft(draft, nodes), nodes, _banned_tokens(draft, gone)),
            chance,
        )
        own = [ROOT, *nodes]  # the rule's numbers -> ours; its root is the place where it began
        own[0] = at.node
        trials += [replace(x, node=own[x.node + 1]) for x in verdict.trials]
        places += [(own[place + 1], law) for place, law in verdict.places]
        path += [own[node + 1] for node in verdict.path]
        for node in sorted(gone):
            if draft.parents[node] in {place for place, _ in places}:
                _insert_trial(
                    trials, draft, _trial(draft, _walk_to(start, draft, draft.parents[node]), node, False)
                )
        end = path[-1] if path else ROOT
        refused = any(not x.ok and draft.parents[x.node] == end for x in trials)
        origin: Origin = "bonus"
        if refused:
            origin = "correction" if at.greedy else "residual"
        return replace(
            verdict,
            path=path,
            origin=origin,
            trials=trials,
            places=places,
            rule=None,
            forced=sorted(self.forced),
        )


def _descendants(draft: Draft, root: int, gone: Sequence[int]) -> list[int]:
    """The nodes that grow from `root`, without those that are gone and what continues them."""
    inside = {root}
    for node, parent in enumerate(draft.parents):
        if parent in inside and node not in gone:
            inside.add(node)
    return sorted(inside - {root})


def _subdraft(draft: Draft, nodes: Sequence[int]) -> Draft:
    """The draft of these nodes, renumbered; a parent that is not among them is its root."""
    place = {node: i for i, node in enumerate(nodes)}

    def of(column: Sequence[X] | None) -> list[X] | None:
        return None if column is None else [column[node] for node in nodes]

    return Draft(
        [draft.tokens[node] for node in nodes],
        [place.get(draft.parents[node], ROOT) for node in nodes],
        draft.kind,
        draft.q,
        of(draft.q_row),
        of(draft.u),
        of(draft.acceptable),
    )


def _banned_tokens(draft: Draft, gone: Sequence[int]) -> dict[int, list[int]]:
    """Place -> the tokens that are removed from the distribution there."""
    banned: dict[int, list[int]] = {}
    for node in gone:
        banned.setdefault(draft.parents[node], []).append(draft.tokens[node])
    return banned


def _walk_to(at: Cursor, draft: Draft, place: int) -> Cursor:
    """The cursor at `place`, from the root."""
    for node in _path(draft.parents, place) if place != ROOT else []:
        at = at.descend(node)
    return at


def _trial(draft: Draft, at: Cursor, node: int, ok: bool) -> Trial:
    """The record of a forced verdict: both probabilities, and that there was no test."""
    x, q = draft.tokens[node], draft.law(node)
    p = float(torch.as_tensor(at.probs)[x])
    return Trial(node, p, p, 1.0 if q is None else float(q[x]), None, float(ok), ok)


def _insert_trial(trials: list[Trial], draft: Draft, trial: Trial) -> None:
    """Put a trial where its turn was: siblings in draw order, behind the trial that led to their place."""
    place = draft.parents[trial.node]
    for i, x in enumerate(trials):
        if draft.parents[x.node] == place and x.node > trial.node:
            trials.insert(i, trial)
            return
    before = [i for i, x in enumerate(trials) if draft.parents[x.node] == place or x.node == place]
    trials.insert(before[-1] + 1 if before else 0, trial)
