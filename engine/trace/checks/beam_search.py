"""Beamed: the hypotheses of a beam search, followed by which went on from which: scores, fines and order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from ..encoding.forks import method_at
from ..records.events import Beams, Header, Step

CLOSE = 1e-6  # nats between two sums that are one


class SearchValidator:
    """What the hypotheses of the step before were worth, from which those of the next follow. Only steps that say what was
    pruned are searches by sums of log-probabilities; `checked` counts their hypotheses. begins: whether the trace holds the
    beginning of the run; a branch goes on in the midst of its hypotheses."""

    def __init__(self, header: Header, begins: bool):
        self._header, self.checked = header, 0
        self._before = Beams([], [], [0.0]) if begins else None  # one hypothesis without tokens

    def lose(self) -> None:
        """What went before the next step is not told, or something else."""
        self._before = None

    def problems(self, step: Step) -> Iterator[str]:
        """What the record of this step, the next one, says wrongly of its hypotheses."""
        beams, before = step.beams, self._before
        self._before = beams
        if beams is None or beams.pruned is None:
            return
        knob = (method_at(self._header, step.step).get("strategy") or {}).get("strength")
        strength = float(knob) if isinstance(knob, int | float) else 0.0
        self.checked += len(beams.tokens)
        groups, fines = beams.groups or [0] * len(beams.tokens), beams.penalties or [0.0] * len(beams.tokens)
        if groups != sorted(groups):
            yield "its groups do not stand one behind the other"
            return
        worth: dict[int, list[float]] = defaultdict(list)
        for group, score, fine in zip(groups, beams.scores, fines, strict=True):
            worth[group].append(score - fine)
        for group, row in worth.items():
            if any(a < b - CLOSE for a, b in pairwise(row)):
                yield f"its hypotheses{f' of group {group + 1}' if beams.groups else ''} do not stand with the best first"
        if before is not None:
            yield from _follows(beams, before, groups, fines, strength)
            yield from _pruned(beams, before, worth, strength)


def _follows(
    beams: Beams, before: Beams, groups: list[int], fines: list[float], strength: float
) -> Iterator[str]:
    """Scores fall, and each fine is that of the text before and of the token, by the groups before."""
    for k, (token, parent, score) in enumerate(zip(beams.tokens, beams.parents, beams.scores, strict=True)):
        if parent >= len(before.scores):
            yield f"its hypothesis {k + 1} goes on from {parent + 1}, and the step before has {len(before.scores)}"
            continue
        if score > before.scores[parent] + CLOSE:
            yield f"its hypothesis {k + 1} has the score {score:.6g}, above that of the text it goes on from"
        due = _fine(before, parent) + strength * _taken(beams, groups[k])[token]
        if abs(fines[k] - due) > CLOSE:
            yield f"its hypothesis {k + 1} was fined {fines[k]:.6g} nats, and the groups before it give {due:.6g}"


def _pruned(beams: Beams, before: Beams, worth: dict[int, list[float]], strength: float) -> Iterator[str]:
    """Nothing that was left is worth more than what its group kept. Behind the prompt all groups extend one text, so that
    there the group is not told."""
    several = beams.groups is not None and before.groups is None and len(worth) > 1
    for parent, token, score in beams.pruned or () if not several else ():
        group = before.groups[int(parent)] if before.groups and parent < len(before.groups) else 0
        left = score - _fine(before, int(parent)) - strength * _taken(beams, group)[int(token)]
        if left > min(worth.get(group, [left])) + CLOSE:
            yield f"it left the token {int(token)} behind hypothesis {int(parent) + 1} for others that are worth less"


def _fine(beams: Beams, k: int) -> float:
    return beams.penalties[k] if beams.penalties and k < len(beams.penalties) else 0.0


def _taken(beams: Beams, group: int) -> Counter[int]:
    """How often the groups before `group` chose each token in this step, those that ended a text too."""
    kept = zip(beams.tokens, beams.groups or (), strict=False)
    ended = ((one["tokens"][-1], one.get("group", 0)) for one in beams.finished if one.get("tokens"))
    return Counter(token for token, number in (*kept, *ended) if number < group)
