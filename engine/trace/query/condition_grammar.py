"""The grammar of conditions, and the tree that a text becomes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError

from decodescope.engine.core.params import did_you_mean
from decodescope.engine.core.refusal import Refusal

from .facts import FACTS, Kind

LONGEST = 500  # characters of a condition
DEEPEST = 24  # brackets and signs inside each other

GRAMMAR = r"""
    start: either
    ?either: both ("or" both)*
    ?both: test ("and" test)*
    ?test: "not" test -> negation
         | sum COMPARE sum (COMPARE sum)* -> compare
         | sum ("in" | "∈") "{" member ("," member)* "}" -> among
         | sum "contains" STRING -> contains
         | sum
    ?sum: product | sum "+" product -> add | sum "-" product -> sub
    ?product: sign | product "*" sign -> mul | product "/" sign -> div
    ?sign: "-" sign -> minus | atom
    ?atom: NUMBER -> number
         | STRING -> string
         | EVICTS NUMBER -> evicts
         | NAME -> name
         | NAME "(" either ")" -> call
         | "(" either ")"
    ?member: NUMBER -> number | "-" NUMBER -> below | STRING -> string
    EVICTS.2: /evicts\s+position\b/
    NAME: /first\s+reject\b|evicts\s+a\s+sink\b|exit\s+layer\b|(verify|draft|commit|cache|step)\s+ms\b|[a-z_][a-z0-9_]*/
    COMPARE: "<=" | "<" | ">=" | ">" | "==" | "!=" | "≤" | "≥" | "≠"
    NUMBER: /\d{1,20}(\.\d{0,20})?(e[+-]?\d{1,3})?|\.\d{1,20}(e[+-]?\d{1,3})?/
    STRING: /"(\\.|[^"\\])*"/
    %ignore /\s+/
"""
QUANTIFIERS = ("any", "all", "count")
FUNCTIONS = {
    "any": "Whether a node makes the condition inside true.",
    "all": "Whether every node that it applies to makes it true, and one does.",
    "count": "How many nodes make the condition inside true.",
    "min": "The smallest value over the nodes of the step; of a figure of the step, over the steps so far.",
    "max": "The largest one.",
    "mean": "The mean.",
    "sum": "The sum.",
}


class ConditionError(Refusal):
    """A condition cannot be read, or not be asked of this trace. One sentence, with the place in the text."""


@dataclass(eq=False)
class ConditionNode:
    """A node of the parsed tree. does: "name", "number", a comparison, ...;  kind: what its value is
    nodes: whether its value differs from node to node;  running: whether it depends on the steps before
    """

    does: str
    kind: Kind
    parts: list[ConditionNode] = field(default_factory=list)
    value: Any = None
    nodes: bool = False
    running: bool = False


def parse_condition(text: str, what: str) -> ConditionNode:
    """The tree of `text`, checked; what: "condition" or "figure". Raises ConditionError."""
    if not text.strip():
        raise ConditionError(
            f"The {what} is empty: write one, such as {'accepted' if what == 'figure' else 'first reject'}."
        )
    if len(text) > LONGEST:
        raise ConditionError(
            f"The {what} has {len(text)} characters; at most {LONGEST} are read: shorten it."
        )
    _check_nesting(text, what)
    try:
        return _Builder().transform(_condition_parser().parse(text))
    except VisitError as error:
        if isinstance(error.orig_exc, ConditionError):
            raise error.orig_exc from None
        raise
    except UnexpectedInput as error:
        raise ConditionError(_describe_error(error, text, what)) from None


def _check_nesting(text: str, what: str) -> None:
    """Refuse what is nested deeper than DEEPEST, before anything recurses over it."""
    depth = signs = 0
    for token in re.findall(r'"(?:\\.|[^"\\])*"|\bnot\b|[()\-]|[^\s()\-"]+', text):
        if token in ("not", "-"):
            signs = signs + 1
        elif token not in "()":
            signs = 0
        else:
            signs = signs
        depth += (token == "(") - (token == ")")
        if depth + signs > DEEPEST:
            raise ConditionError(f"The {what} is nested more than {DEEPEST} deep: write it flatter.")


@cache
def _condition_parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def _describe_error(error: UnexpectedInput, text: str, what: str) -> str:
    """Where a text goes wrong, counted from 1."""
    at = (
        error.pos_in_stream
        if isinstance(error.pos_in_stream, int) and error.pos_in_stream >= 0
        else len(text)
    )
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return f"The {what} {shorten_condition(text)} breaks off at its end: a value, a name or a bracket is missing."
    shown = str(error.token) if isinstance(error, UnexpectedToken) else text[at : at + 1]
    more = (
        " One sign, =, is no comparison: write ==."
        if shown == "=" and isinstance(error, UnexpectedCharacters)
        else ""
    )
    return f"The {what} cannot be read at character {at + 1}, {shown[:20]!r}.{more or ' Examples: first reject; p/q < 0.1.'}"


def shorten_condition(text: str) -> str:
    """A text inside a sentence."""
    return f"“{text[:40]}…”" if len(text) > 40 else f"“{text}”"


@v_args(inline=True)
class _Builder(Transformer[Token, ConditionNode]):
    """The grammar's tree into Parts, each checked."""

    def start(self, part: ConditionNode) -> ConditionNode:
        return part

    def number(self, token: Token) -> ConditionNode:
        value = float(token)
        return ConditionNode("number", "number", value=int(token) if token.isdigit() else value)

    def below(self, token: Token) -> ConditionNode:
        return ConditionNode("number", "number", value=-self.number(token).value)

    def string(self, token: Token) -> ConditionNode:
        return ConditionNode("string", "text", value=_unquote(token))

    def name(self, token: Token) -> ConditionNode:
        name = " ".join(token.split())
        fact = FACTS.get(name)
        if fact is None:
            raise ConditionError(_unknown_name_text(name, token, [*FACTS, *FUNCTIONS]))
        return ConditionNode(
            "name", fact.kind, value=name, nodes=fact.per == "node", running=fact.per == "run"
        )

    def minus(self, part: ConditionNode) -> ConditionNode:
        _require_kind(part, "number", "A sign −")
        return _make_node("minus", "number", [part])

    def evicts(self, words: Token, number: Token) -> ConditionNode:
        if not number.isdigit():
            raise ConditionError(
                f"evicts position {number}: a position is a whole number (character {_character_place(number)})."
            )
        return ConditionNode("evicts", "truth", value=int(number))

    def compare(self, *parts: Any) -> ConditionNode:
        sides: list[ConditionNode] = list(parts[::2])
        signs = [str(x) for x in parts[1::2]]
        for sign, (a, b), token in zip(signs, pairwise(sides), parts[1::2], strict=True):
            kinds = {a.kind, b.kind} - {"token"}
            if len(kinds) > 1 or "truth" in kinds or ("text" in kinds and sign not in ("==", "!=", "≠")):
                raise ConditionError(
                    f"A {a.kind} and a {b.kind} cannot be compared with {sign} (character {_character_place(token)}): "
                    "compare numbers, "
                    "or texts with == and !=."
                )
        return _make_node("compare", "truth", sides, signs)

    def among(self, part: ConditionNode, *members: ConditionNode) -> ConditionNode:
        if part.kind == "truth":
            raise ConditionError("Only a number, a text or a token can be in a set { }.")
        return _make_node("among", "truth", [part], frozenset(x.value for x in members))

    def contains(self, part: ConditionNode, text: Token) -> ConditionNode:
        if part.kind not in ("text", "token"):
            raise ConditionError(
                f"A {part.kind} contains no text (character {_character_place(text)}): write text contains, or token contains."
            )
        return _make_node("contains", "truth", [part], _unquote(text))

    def negation(self, part: ConditionNode) -> ConditionNode:
        _require_kind(part, "truth", "not")
        return _make_node("not", "truth", [part])

    def both(self, *parts: ConditionNode) -> ConditionNode:
        return self._combine_truths("and", parts)

    def either(self, *parts: ConditionNode) -> ConditionNode:
        return self._combine_truths("or", parts)

    def _combine_truths(self, word: str, parts: tuple[ConditionNode, ...]) -> ConditionNode:
        for part in parts:
            _require_kind(part, "truth", word)
        # if the first rejection is compared with other figures of nodes, the node is meant
        if any(x.nodes for x in parts):
            for one in (y for x in parts for y in walk(x) if y.does == "name" and y.value == "first reject"):
                one.nodes = True
            parts = tuple(_refresh_nodes(x) for x in parts)
        return _make_node(word, "truth", list(parts))

    def call(self, token: Token, part: ConditionNode) -> ConditionNode:
        name = " ".join(token.split())
        if name not in FUNCTIONS:
            raise ConditionError(_unknown_name_text(name + "(", token, [f"{x}(" for x in FUNCTIONS]))
        _require_kind(part, "truth" if name in QUANTIFIERS else "number", f"{name}(...)")
        if name in QUANTIFIERS and not part.nodes:
            raise ConditionError(
                f"{name}(...) speaks of the nodes of a step (character {_character_place(token)}), and nothing in it does."
            )
        if not part.nodes and part.running:
            raise ConditionError(
                f"{name}(...) over the steps so far holds what is that already (character {_character_place(token)})."
            )
        kind: Kind = "truth" if name in ("any", "all") else "number"
        return ConditionNode("call", kind, [part], name, False, part.running or not part.nodes)

    def _arithmetic(self, a: ConditionNode, b: ConditionNode, does: str) -> ConditionNode:
        for part in (a, b):
            _require_kind(part, "number", "Arithmetic")
        return _make_node(does, "number", [a, b])

    def add(self, a: ConditionNode, b: ConditionNode) -> ConditionNode:
        return self._arithmetic(a, b, "add")

    def sub(self, a: ConditionNode, b: ConditionNode) -> ConditionNode:
        return self._arithmetic(a, b, "sub")

    def mul(self, a: ConditionNode, b: ConditionNode) -> ConditionNode:
        return self._arithmetic(a, b, "mul")

    def div(self, a: ConditionNode, b: ConditionNode) -> ConditionNode:
        return self._arithmetic(a, b, "div")


def _make_node(does: str, kind: Kind, parts: list[ConditionNode], value: Any = None) -> ConditionNode:
    return ConditionNode(does, kind, parts, value, any(x.nodes for x in parts), any(x.running for x in parts))


def _refresh_nodes(part: ConditionNode) -> ConditionNode:
    """`part`, with its flag on nodes computed again after one below it changed."""
    if part.does not in ("name", "call"):
        part.parts = [_refresh_nodes(x) for x in part.parts]
        part.nodes = part.nodes or any(x.nodes for x in part.parts)
    return part


def walk(part: ConditionNode) -> list[ConditionNode]:
    """`part` and all below it."""
    return [part, *(y for x in part.parts for y in walk(x))]


def _require_kind(part: ConditionNode, kind: str, where: str) -> None:
    if part.kind != kind:
        due = "a condition" if kind == "truth" else f"a {kind}"
        what = (
            part.value if part.does == "name" else f"a {'condition' if part.kind == 'truth' else part.kind}"
        )
        raise ConditionError(
            f"{where} needs {due}, and {what} is {'none' if part.does != 'name' else f'a {part.kind}'}."
        )


def _unknown_name_text(name: str, token: Token, known: list[str]) -> str:
    way = did_you_mean(name, known) or f" There are: {', '.join(known)}."
    return f"There is no name {name[:40]!r} (character {_character_place(token)}).{way}"


def _character_place(token: Token) -> int:
    return (token.start_pos or 0) + 1


def _unquote(token: Token) -> str:
    signs = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda escape: signs.get(escape[1], escape[1]), token[1:-1], flags=re.DOTALL)
