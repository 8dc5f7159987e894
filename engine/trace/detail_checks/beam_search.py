"""Beam searches: which hypotheses went on from which, what each was fined, and that nothing better was left."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from ..details.shapes import Detail, TreeDetail
from ..details.tree import CLOSE
from ..encoding.forks import method_at
from ..records.events import Header, Step
from .details import details_by_check

CHECK = "beam_search"
Number = int | float | None


class _Hypotheses:
    """The nodes of a step as rows: (parent, token, score, group, fine), by outcome."""

    def __init__(self, detail: TreeDetail):
        n, columns = len(detail), detail.columns
        groups, fines = columns.get("group") or [0] * n, columns.get("fine") or [0.0] * n
        self.rows: dict[str, list[tuple[int, int, float, int, float]]] = defaultdict(list)
        tokens, scores, words = (columns.get(name, []) for name in ("token", "score", "outcome"))
        nodes = zip(detail.parents, tokens, scores, groups, fines, words, strict=True)
        for parent, token, score, group, fine, word in nodes:
            self.rows[word].append((parent, token, score, group or 0, fine or 0.0))
        self.kept = self.rows["kept"]
        self.tokens = Counter((row[3], row[1]) for word in ("kept", "ended") for row in self.rows[word])

    def count_earlier_choices(self, group: int, token: int) -> int:
        """How often the groups before `group` chose a token in this step, those that ended a text too."""
        return sum(n for (other, own), n in self.tokens.items() if other < group and own == token)


class SearchValidator:
    """The scores of the hypotheses of the step before, from which those of the next follow; `checked` counts them. begins:
    True if the trace holds the beginning of the run; a branch goes on in the midst of its hypotheses."""

    def __init__(self, header: Header, begins: bool):
        self._header, self.checked = header, 0
        # one hypothesis without tokens after the prompt: its score and its fine
        self._before: list[tuple[float, float]] | None = [(0.0, 0.0)] if begins else None

    def lose(self) -> None:
        """Forget the step before: it is unknown, or differs."""
        self._before = None

    def problems(self, step: Step) -> Iterator[str]:
        """Problems of the hypotheses in the record of this step, the next one."""
        details = details_by_check(self._header, step, CHECK)
        if not details:
            self._before = None
            return
        before, detail = self._before, details[0]
        self._before = None
        if (wrong := _missing_column(detail)) is not None:
            yield wrong
            return
        assert isinstance(detail, TreeDetail)
        own = _Hypotheses(detail)
        self._before = [(score, fine) for _, _, score, _, fine in own.kept]
        self.checked += len(own.kept)
        knob = (method_at(self._header, step.step).get("strategy") or {}).get("diversity_penalty")
        strength = float(knob) if isinstance(knob, int | float) else 0.0
        if before is not None:
            yield from _check_scores(own, before, strength)
            yield from _check_dropped(own, before, strength)


def _missing_column(detail: Detail) -> str | None:
    """The column that a detail lacks for its check, as a phrase."""
    if not isinstance(detail, TreeDetail):
        return "its hypotheses are no tree"
    kinds = {"token": int, "score": int | float, "outcome": str, "group": Number, "fine": Number}
    nothing: dict[str, list[Any]] = {"token": [None] * len(detail), "group": [], "fine": []}
    held = {"score": nothing["token"], "outcome": nothing["token"], **nothing, **detail.columns}
    missing = [name for name, kind in kinds.items() if any(not isinstance(x, kind) for x in held[name])]
    return f"its hypotheses lack a {missing[0]}" if missing else None


def _check_scores(own: _Hypotheses, before: list[tuple[float, float]], strength: float) -> Iterator[str]:
    """Scores fall, and each fine is that of the text before and of the token, by the groups before."""
    for k, (parent, token, score, group, fine) in enumerate(own.kept, 1):
        if not 0 <= parent < len(before):
            continue  # the check of all trees reports it
        above, paid = before[parent]
        if score > above + CLOSE:
            yield f"its hypothesis {k} has the score {score:.6g}, above that of the text it goes on from"
        due = paid + strength * own.count_earlier_choices(group, token)
        if abs(fine - due) > CLOSE:
            yield f"its hypothesis {k} was fined {fine:.6g} nats, and the groups before it give {due:.6g}"


def _check_dropped(own: _Hypotheses, before: list[tuple[float, float]], strength: float) -> Iterator[str]:
    """Nothing that was left is worth more than what its group kept."""
    worth: dict[int, float] = {}
    for _, _, score, group, fine in own.kept:
        worth[group] = min(worth.get(group, score - fine), score - fine)
    for parent, token, score, group, _ in own.rows["left"]:
        paid = before[parent][1] if 0 <= parent < len(before) else 0.0
        value = score - paid - strength * own.count_earlier_choices(group, token)
        if value > worth.get(group, value) + CLOSE:
            yield f"it left the token {token} behind hypothesis {parent + 1} for others that are worth less"
