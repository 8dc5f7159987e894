"""The tests of one step together with the rule's description: which numbers decided, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ..encoding.forks import method_at
from ..records.events import DraftTree, Header, Step, Trials
from ..records.evidence import Telling, is_given
from ..values.formula import Formula, Names, evaluate_formula, formula, sentence

ROOT = -1


def rule_at(header: Header, step: int) -> dict[str, Any]:
    """Name and knobs of the acceptance rule that `step` was made with, by the header's word."""
    rule = method_at(header, step).get("acceptance")
    return rule if isinstance(rule, dict) else {}


def telling_at(header: Header, step: int = 1 << 53) -> Telling | None:
    """The rule's description for `step` (by default the last one); None if unknown."""
    name = str(rule_at(header, step).get("name", ""))
    return header.tellings.get(name)


def step_trials(header: Header, step: Step) -> StepTrials | None:
    """The tests of `step`; None if none were recorded, or nothing is known of the rule."""
    telling = telling_at(header, step.step)
    if step.trials is None or step.draft is None or telling is None:
        return None
    return StepTrials(telling, rule_at(header, step.step), step, step.trials, step.rule or {})


class StepTrials:
    """The trials of one step.

    knobs: of the rule;  extra: what the rule added to the record
    matching: True if the target had one choice everywhere, and a token stays if it is that choice
    """

    def __init__(
        self,
        telling: Telling,
        knobs: Mapping[str, Any],
        step: Step,
        trials: Trials,
        extra: Mapping[str, Any],
    ):
        assert step.draft is not None
        self.telling = telling
        self.knobs = knobs
        self.trials = trials
        self.extra = extra
        self.draft: DraftTree = step.draft
        plain = trials.num is None and trials.den is None and not extra
        self.matching = plain and all(u is None for u in trials.u) and set(trials.p) <= {0.0, 1.0}
        self.path = "walk" if self.matching or step.forced else telling.path

    def __len__(self) -> int:
        return len(self.trials.node)

    def num(self, i: int) -> float:
        """The number that u * den is compared with."""
        value = None if self.trials.num is None else self.trials.num[i]
        return self.trials.r[i] if value is None else value

    def den(self, i: int) -> float:
        """The factor of u, or, without a draw, the bound."""
        value = None if self.trials.den is None else self.trials.den[i]
        return self.trials.q[i] if value is None else value

    def has_bound(self, i: int) -> bool:
        """True if a bound decided, and no draw."""
        return self.trials.u[i] is None and self.trials.den is not None and self.trials.den[i] is not None

    def test_passes(self, i: int) -> bool:
        """The result of the test itself: u * den < num; without a draw den < num, or, if no den was recorded, 0 < num."""
        u = self.trials.u[i]
        if u is not None:
            return u * self.den(i) < self.num(i)
        return self.num(i) > (self.den(i) if self.has_bound(i) else 0)

    def is_spared(self, i: int) -> bool | None:
        """True if the rule's other condition keeps this token; None if its numbers are not recorded."""
        also = self.telling.also
        if also is None or self.matching:
            return False
        value, bound = self.value(i, also.value), self.value(i, also.bound)
        return None if value is None or bound is None else value > bound

    def stays(self, i: int) -> bool | None:
        """The verdict that follows from the numbers; None if they are not recorded."""
        return self.test_passes(i) or self.is_spared(i)

    @property
    def last_success(self) -> int:
        """The place of the last success, from 1; 0: none. By the numbers."""
        return max((i + 1 for i in range(len(self)) if self.stays(i)), default=0)

    @cached_property
    def place(self) -> list[int]:
        """Per trial its place, numbered as they come; copies of a place are one."""
        key: list[Any] = list(range(len(self.draft.tokens)))
        if self.path == "copies":
            key = node_paths(self.draft)
        seen: dict[Any, int] = {}
        parents = (self.draft.parents[node] for node in self.trials.node)
        return [seen.setdefault(ROOT if parent == ROOT else key[parent], len(seen)) for parent in parents]

    def column(self, name: str, i: int, before: bool = False) -> float | None:
        """The rule's column `name` for trial `i`; None if it is not a number. before: for a running column, the previous one"""
        per, column = self._per.get(name), self.extra.get(name)
        if per is None or (before and per != "running"):
            return None
        if per != "step":
            at = self.place[i] if per == "place" else i + (per == "running" and not before)
            column = column[at] if isinstance(column, list) and at < len(column) else None
        return _as_number(column)

    @cached_property
    def _per(self) -> dict[str, str]:
        return {x.name: x.per for x in self.telling.columns}

    def wrong_columns(self) -> list[str]:
        """The names of the rule's columns that are missing, hold other things than numbers, or have another length."""
        if self.matching:
            return []
        due = {"trial": len(self), "place": len(set(self.place)), "running": len(self) + 1}
        return [name for name, per in self._per.items() if not _is_column(self.extra.get(name), due.get(per))]

    def names(self, i: int) -> Names:
        """The numbers of trial `i` by name."""
        t = self.trials
        own = {"p": t.p[i], "r": t.r[i], "q": t.q[i], "u": t.u[i], "num": self.num(i), "den": self.den(i)}
        own |= {"k": i + 1, "count": len(self)}

        def of(name: str) -> float | None:
            if name in own:
                return own[name]
            if name == "last":
                return self.last_success
            if name.startswith("before("):
                return self.column(name[7:-1], i, before=True)
            return self.column(name, i) if name in self._per else _as_number(self.knobs.get(name))

        return of

    def value(self, i: int, text: str | Formula) -> float | None:
        """The value of a formula at trial `i`; None if a number is missing."""
        return evaluate_formula(formula(text) if isinstance(text, str) else text, self.names(i))

    def format_sentence(self, i: int, text: str, forms: Mapping[str, Any]) -> str | None:
        """A sentence with the numbers of trial `i`; None if one is missing. forms: form -> how such a number is written"""
        filled = ""
        for part in sentence(text):
            if isinstance(part, str):
                filled += part
                continue
            x = evaluate_formula(part[0], self.names(i))
            if x is None:
                return None
            filled += forms[part[1]](x) if part[1] in forms else f"{x:.{part[1]}f}"
        return filled

    def knobs_match(self, given: Mapping[str, Any]) -> bool:
        """True if the rule's knobs have these values."""
        return is_given(given, self.knobs)


def node_paths(draft: DraftTree) -> list[tuple[int, ...]]:
    """Per node the tokens from the root to it: equal for copies of one place."""
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        paths.append((*(() if parent == ROOT else paths[parent]), token))
    return paths


def _as_number(x: Any) -> float | None:
    return float(x) if isinstance(x, int | float) and not isinstance(x, bool) else None


def _is_column(rows: Any, length: int | None) -> bool:
    if length is None:
        return _as_number(rows) is not None
    return isinstance(rows, list) and len(rows) == length and all(_as_number(x) is not None for x in rows)
