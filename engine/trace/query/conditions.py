"""Conditions: questions about a step, as people write them: `first reject`, `p/q < 0.1`, `accepted == 0`.

The language has numbers, texts, the names of `facts.py`, arithmetic, comparisons (also in a chain, 0.1 < p <= 0.5), `in`,
`contains`, `and`, `or`, `not`, and functions. It has no assignment and no loop, and nothing in it is executed: a text is
parsed into a tree of our own, and that is walked.

A name is a figure of the step, of each of its nodes, or of the run so far. A condition that speaks of nodes is true where one
node makes it true; `any(...)` and `all(...)` state it, or the opposite. A value that a step has not (p of a node that was not
tried) makes what is asked of it unknown, which is neither true nor, under `not`, true. What the trace's level did not record
is refused in a sentence.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..records.events import Header, Piece, Step
from ..records.parts import part_description
from ..records.pieces import token_label, visible_token
from .condition_grammar import (
    QUANTIFIERS,
    ConditionError,
    ConditionNode,
    parse_condition,
    shorten_condition,
    walk,
)
from .facts import FACTS, StepFacts, finite_or_none

WORK = 1_000_000  # parts of a condition that are looked at in one step, over all its nodes
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "≤": operator.le, "≥": operator.ge, "≠": operator.ne,
}  # fmt: skip
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
}  # fmt: skip


@dataclass(frozen=True)
class ConditionResult:
    """The result of a condition or watch for a step. value: true, false or a number; None if it is unknown
    node: the first node that makes it true, as Facts counts them; None: it is not about nodes;  why: one sentence
    """

    value: bool | float | None
    node: int | None = None
    why: str = ""


class Condition:
    """A condition, or with `number` a figure to watch, parsed and checked. Raises ConditionError.

    reads: the names in it, in their order;  running: True if it must see every step from the first on
    """

    def __init__(self, text: str, number: bool = False):
        self.text = " ".join(text.split()) if '"' not in text else text.strip()
        self.number = number
        self._root = parse_condition(text, "figure" if number else "condition")
        if not number and self._root.kind != "truth":
            raise ConditionError(
                f"{shorten_condition(text)} is a {self._root.kind}, not a condition: compare it, such as accepted == 0."
            )
        if number and self._root.kind != "number":
            raise ConditionError(
                f"{shorten_condition(text)} is no number, so it cannot be drawn: watch a number, such as accepted."
            )
        self._parts = [*walk(self._root)]
        self.reads = list(dict.fromkeys(x.value for x in self._parts if x.does == "name"))
        self.reads += ["evicts position"] * any(x.does == "evicts" for x in self._parts)
        self.running = any(x.running for x in self._parts)

    def check(self, header: Header) -> None:
        """Raise ConditionError if a run with this header does not record what the condition reads."""
        for name in self.reads:
            level = FACTS[name].level if name in FACTS else "decisions"
            if level not in header.levels:
                raise ConditionError(
                    f"{name} was not recorded: this run was recorded at the level “{header.levels[-1]}”, and {name} needs "
                    f"“{level}”; record the run again."
                )
            if name == "exit layer" and part_description(header, "adaptive_depth").get(
                "exact", not isinstance(header.method.get("adaptive_depth"), dict)
            ):
                raise ConditionError(
                    "exit layer was not recorded: this run's method runs all layers of every pass."
                )

    def watch_run(self, header: Header) -> Watch:
        """The condition over the steps of one run. Raises ConditionError if the run does not record what it reads."""
        self.check(header)
        return Watch(self, header)


class Watch:
    """A condition that goes over the steps of one run; one that is `running` must be given all of them, in order."""

    def __init__(self, condition: Condition, header: Header):
        self.condition, self.header = condition, header
        self._past: dict[
            int, tuple[int, float, float, float]
        ] = {}  # running function -> count, sum, least, most
        self._once: dict[int, Any] = {}  # function -> its value in this step
        self._tried = self._passed = self._work = 0
        self._facts: StepFacts

    def see(self, step: Step, pieces: Mapping[str, Piece]) -> ConditionResult:
        """The result for `step`; pieces: id -> text, of what the trace has shown up to here. Raises ConditionError if a
        step has more nodes than can be looked at."""
        if step.trials is not None:
            self._tried += len(step.trials.ok)
            self._passed += step.trials.ok.count(True)
        self._facts, self._work = StepFacts(step, self.header, pieces, self._tried, self._passed), 0
        self._once.clear()
        for (
            part
        ) in self.condition._parts:  # what sums up the steps must see this one, whatever else is asked of it
            if part.does == "call" and part.running:
                self._value(part, None)
        root = self.condition._root
        if not root.nodes:
            value = self._value(root, None)
            node = self._first_reject() if value is True else None
            return ConditionResult(finite_or_none(value), node, self._why(node) if value is True else "")
        for i in range(len(self._facts.tokens)):
            value = finite_or_none(self._value(root, i))
            if value is True or (self.condition.number and value is not None):
                node = i if self._facts.has_drawn_nodes else None
                return ConditionResult(value, node, "" if self.condition.number else self._why(i))
        return ConditionResult(None if self.condition.number else False)

    def _first_reject(self) -> int | None:
        """The node that a condition points at which speaks of the first rejection."""
        t = self._facts.step.trials
        if t is None or "first reject" not in self.condition.reads:
            return None
        return next((node for node, ok in zip(t.node, t.ok, strict=True) if not ok), None)

    def _value(self, part: ConditionNode, i: int | None) -> Any:
        """The value of `part` at node i. None: unknown."""
        self._work += 1
        if self._work > WORK:
            raise ConditionError(
                f"Step {self._facts.step.step} has {len(self._facts.tokens):,} nodes, too many for this condition: ask for "
                "less of each of them."
            )
        return _DOES[part.does](self, part, i)

    def _name(self, part: ConditionNode, i: int | None) -> Any:
        if not part.nodes:
            return self._facts.value(part.value)
        if part.value == "first reject":
            return self._first_reject() == i
        column = self._facts.column(part.value)
        return column[i] if i is not None and i < len(column) else None

    def _and(self, part: ConditionNode, i: int | None) -> bool | None:
        known: bool | None = True
        for one in part.parts:
            value = self._value(one, i)
            if value is False:
                return False
            known = known if value else None
        return known

    def _or(self, part: ConditionNode, i: int | None) -> bool | None:
        known: bool | None = False
        for one in part.parts:
            value = self._value(one, i)
            if value:
                return True
            known = None if value is None else known
        return known

    def _not(self, part: ConditionNode, i: int | None) -> bool | None:
        value = self._value(part.parts[0], i)
        return None if value is None else not value

    def _compare(self, part: ConditionNode, i: int | None) -> bool | None:
        values = [self._value(one, i) for one in part.parts]
        known: bool | None = True
        for k, sign in enumerate(part.value):
            a, b = values[k], values[k + 1]
            if part.parts[k].kind == "token" or part.parts[k + 1].kind == "token":
                a, b = self._as_token(a, b), self._as_token(b, a)
            if a is None or b is None:
                known = None
            elif not COMPARE[sign](a, b):
                return False
        return known

    def _as_token(self, value: Any, other: Any) -> Any:
        """A token compared with a text is its own text."""
        return self._piece(value) if isinstance(other, str) and isinstance(value, int) else value

    def _piece(self, token: int) -> str:
        piece = self._facts.pieces.get(str(token))
        return token_label(token, {} if piece is None else {token: piece})

    def _among(self, part: ConditionNode, i: int | None) -> bool | None:
        value = self._value(part.parts[0], i)
        if value is None:
            return None
        inside: bool = value in part.value
        if part.parts[0].kind == "token" and not inside:
            inside = self._piece(value) in part.value
        return inside

    def _contains(self, part: ConditionNode, i: int | None) -> bool | None:
        value = self._value(part.parts[0], i)
        if value is None:
            return None
        return part.value in (self._piece(value) if part.parts[0].kind == "token" else value)

    def _arithmetic(self, part: ConditionNode, i: int | None) -> Any:
        a, b = (self._value(one, i) for one in part.parts)
        if a is None or b is None:
            return None
        try:
            return finite_or_none(ARITHMETIC[part.does](a, b))
        except (ZeroDivisionError, OverflowError):
            return None

    def _minus(self, part: ConditionNode, i: int | None) -> Any:
        value = self._value(part.parts[0], i)
        return None if value is None else -value

    def _evicts(self, part: ConditionNode, i: int | None) -> bool | None:
        gone = self._facts.evicted_positions()
        return None if gone is None else part.value in gone

    def _call(self, part: ConditionNode, i: int | None) -> Any:
        """A function over the nodes, or over the steps so far: its value is the step's, found once."""
        if id(part) not in self._once:
            inside = part.parts[0]
            value = (
                self._over_nodes(part)
                if inside.nodes
                else self._so_far(part, finite_or_none(self._value(inside, None)))
            )
            self._once[id(part)] = value
        return self._once[id(part)]

    def _over_nodes(self, part: ConditionNode) -> Any:
        values = [self._value(part.parts[0], k) for k in range(len(self._facts.tokens))]
        if part.value in QUANTIFIERS:
            true, known = values.count(True), [x for x in values if x is not None]
            if part.value == "count":
                return true
            if part.value == "any":
                return true > 0
            return 0 < true == len(known)
        numbers = [x for x in map(finite_or_none, values) if x is not None]
        if not numbers:
            return None
        total = sum(numbers)
        sums = {"mean": total / len(numbers), "sum": total, "min": min(numbers), "max": max(numbers)}
        return finite_or_none(sums[part.value])

    def _so_far(self, part: ConditionNode, value: Any) -> Any:
        """A function of a figure of the step, over the steps so far."""
        count, total, least, most = self._past.get(id(part), (0, 0.0, float("inf"), float("-inf")))
        if value is not None:
            count = count + 1
            total = total + value
            least = min(least, value)
            most = max(most, value)
            self._past[id(part)] = count, total, least, most
        if not count:
            return None
        return {"mean": total / count, "sum": total, "min": least, "max": most}[part.value]

    def _why(self, i: int | None) -> str:
        """The values read, in numbers: of the step, and of node i."""
        said = []
        for name in self.condition.reads:
            if name not in FACTS or FACTS[name].kind == "truth":
                continue
            per_node = FACTS[name].per == "node"
            value = None
            if not per_node:
                value = self._facts.value(name)
            elif i is not None:
                value = self._facts.column(name)[i]
            if value is not None and name != "token":
                said.append(f"{name} = {value[:40]!r}" if isinstance(value, str) else f"{name} = {value:.6g}")
        where = f"Step {self._facts.step.step}"
        if i is not None:
            token = self._facts.tokens[i]
            piece = self._facts.pieces.get(str(token))
            where += f", node {i + 1}, “{visible_token(token, {} if piece is None else {token: piece})}”"
        return f"{where}: {', '.join(said) or self.condition.text}."


_DOES: dict[str, Callable[[Watch, ConditionNode, int | None], Any]] = {
    "number": lambda watch, part, i: part.value,
    "string": lambda watch, part, i: part.value,
    "name": Watch._name,
    "and": Watch._and,
    "or": Watch._or,
    "not": Watch._not,
    "compare": Watch._compare,
    "among": Watch._among,
    "contains": Watch._contains,
    "minus": Watch._minus,
    "evicts": Watch._evicts,
    "call": Watch._call,
    **dict.fromkeys(ARITHMETIC, Watch._arithmetic),
}
