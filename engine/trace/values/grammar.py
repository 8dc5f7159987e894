"""Grammars: what a canvas with open places may still become, decided by tables over its spans. No torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from lark import Lark, Transformer, UnexpectedInput, v_args
from lark.exceptions import VisitError

from decodescope.engine.core.refusal import Refusal

OPEN = -1  # instead of a token that is not settled yet
LONGEST, PLACES = 2000, 128  # characters of a grammar, places of a canvas
MOST_RULES = 120  # once written out with two symbols each

SHIPPED = {
    "brackets": 'start: pair+\npair: "(" pair* ")" | "[" pair* "]"\n%ignore " "',
    "sums": 'start: term ("+" term)*\nterm: DIGIT+ | "(" start ")"\nDIGIT: /[0-9]/\n%ignore " "',
    "lists": 'start: ITEM+\nITEM: /[A-Z][a-z]+/\n%ignore " "',
}
NOTATION = r"""
    start: (line? _NL)* line?
    ?line: NAME ":" alts -> rule | "%ignore" STRING -> ignore
    alts: seq (_OR seq)*
    seq: part*
    ?part: atom | atom REPEAT -> repeated
    ?atom: NAME -> name | STRING -> string | PATTERN -> pattern | "(" alts ")" | "[" alts "]" -> maybe
    REPEAT: "?" | "*" | "+"
    NAME: /[a-z_][a-z0-9_]*|[A-Z_][A-Z0-9_]*/
    STRING: /"(\\.|[^"\\\n])+"/
    PATTERN: /\/(\\.|[^\/\\\n])+\//
    _OR.2: /[ \t\r\n]*\|/
    _NL: /(\r?\n[ \t]*)+/
    COMMENT: /[ \t]*\/\/[^\n]*/
    %ignore /[ \t]+/
    %ignore COMMENT
"""
_PATTERN = re.compile(r"((\[(\\.|[^\]\\])+\]|\\.|[\w ])[+*?]?){1,8}")
_ESCAPED = {"n": "\n", "t": "\t"}


class GrammarError(Refusal):
    """A grammar cannot be read. One sentence, with the place in the text."""


@dataclass
class _ExpandedRules:
    """Rules as they are written out: symbol -> its alternatives, of at most two symbols each; terminals have none."""

    rules: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    terminals: dict[str, str] = field(default_factory=dict)  # symbol -> string or /pattern/
    ignored: str = ""

    def symbol(self, alternatives: Iterable[Sequence[str]], name: str = "") -> str:
        """A symbol, new unless it is named, for these alternatives."""
        name = name or f"#{len(self.rules)}"
        self.rules[name] = []
        for symbols in alternatives:
            while len(symbols) > 2:
                symbols = [symbols[0], self.symbol([symbols[1:]])]
            self.rules[name].append(tuple(symbols))
        return name


@v_args(inline=True)
class _Writer(Transformer[Any, Any]):
    """Writes the rules of a parsed grammar out; each part becomes a symbol."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.named = _ExpandedRules(), dict[str, list[list[str]]]()

    def name(self, token: Any) -> str:
        return str(token)

    def string(self, token: Any) -> str:
        self.written.terminals[str(token)] = _unescape(token)
        return str(token)

    def pattern(self, token: Any) -> str:
        if not _PATTERN.fullmatch(token[1:-1]):
            raise GrammarError(
                f"The grammar's pattern {str(token)[:40]} is more than characters and [classes], each with +, * or ? behind it "
                "(at most 8): write it with these, or as strings."
            )
        self.written.terminals[str(token)] = str(token)
        return str(token)

    def seq(self, *parts: str) -> list[str]:
        return list(parts)

    def alts(self, *sequences: list[str]) -> str:
        return self.written.symbol(sequences)

    def maybe(self, part: str) -> str:
        return self.written.symbol([[], [part]])

    def repeated(self, part: str, sign: Any) -> str:
        if sign == "?":
            return self.maybe(part)
        again = self.written.symbol([[part] if sign == "+" else []])
        self.written.rules[again].append((again, part))
        return again

    def rule(self, token: Any, part: str) -> None:
        if str(token) in self.named:
            raise GrammarError(
                f"The grammar says twice what {token} is: write one rule, its alternatives with | between them."
            )
        self.named[str(token)] = [[part]]
        self.written.rules[str(token)] = [(part,)]

    def ignore(self, token: Any) -> None:
        if _unescape(token).strip(" \t\n"):
            raise GrammarError(f"The grammar ignores {token}: only blanks can be ignored, around a token.")
        self.written.ignored += _unescape(token)


def _unescape(token: str) -> str:
    return re.sub(r"\\(.)", lambda x: _ESCAPED.get(x[1], x[1]), str(token)[1:-1])


@lru_cache(maxsize=1)
def _notation_parser() -> Lark:
    return Lark(NOTATION, parser="lalr")


class ContextFreeGrammar:
    """A grammar in Lark's notation: rules `name: ...` of strings, /patterns/, names, ( ), [ ], ?, *, + and |; a text is what
    `start` may become. A token is a terminal: a string, or a pattern of characters and [classes], is one token with that text;
    blanks around the text are left out if they are ignored (%ignore " "). Lark's imports, templates, aliases and ~ are not
    read.

    names:   of the terminals, strings in quotes, patterns between slashes;  ignored: characters
    left, right, heads: int64 [P], the two symbols of each rule, and the one that becomes them
    over:    bool [P, N], all symbols that may become such two;  leaf: bool [T, N], all that may become each terminal
    under:   bool [N, N], whether symbol a may become b alone;  empty: whether start may become nothing
    """

    def __init__(self, text: str):
        """Raises GrammarError."""
        written = _expand_rules(SHIPPED.get(text.strip(), text))
        symbols = [*written.rules, *written.terminals]
        at = {name: i for i, name in enumerate(symbols)}
        nullable = _nullable_symbols(written.rules)
        under = np.eye(len(symbols), dtype=bool)  # under[a, b]: a may become b alone
        pairs: list[tuple[int, int, int]] = []
        for name, alternatives in written.rules.items():
            for one in alternatives:
                for i, part in enumerate(one):
                    under[at[name], at[part]] |= all(x in nullable for x in (*one[:i], *one[i + 1 :]))
                if len(one) == 2:
                    pairs.append((at[name], at[one[0]], at[one[1]]))
        if len(pairs) > MOST_RULES:
            raise GrammarError(
                f"The grammar has {len(pairs)} rules once they are written out, at most {MOST_RULES} are taken: shorten it."
            )
        for _ in range(len(symbols).bit_length()):
            under = _bool_matmul(under, under)
        self.names, self.ignored = list(written.terminals), written.ignored
        self._texts = list(written.terminals.values())
        self.under = under
        self.start = at["start"]
        self.empty = "start" in nullable
        heads, self.left, self.right = np.array(pairs, np.int64).reshape(-1, 3).T
        self.heads, self.terminals = heads, np.array([at[x] for x in self.names], np.int64)
        self.over, self.leaf = under.T[heads], under.T[self.terminals]

    def matching_terminals(self, text: str) -> list[int]:
        """Which terminals a token of this text is, by number."""
        bare = text.strip(self.ignored) if self.ignored else text
        return [i for i, x in enumerate(self._texts) if _matches_terminal(x, self.names[i], bare)]

    def inside(self, base: np.ndarray) -> np.ndarray:
        """bool [..., n + 1, n + 1, N]: which symbols may become the places from i to j - 1. base: bool [..., n, T], which
        terminals each place can be. The table of Cocke, Younger and Kasami, all spans of a length at once."""
        n = base.shape[-2]
        table = np.zeros((*base.shape[:-2], n + 1, n + 1, len(self.under)), bool)
        places = np.arange(n)
        table[..., places, places + 1, :] = _bool_matmul(base, self.leaf)
        for d in range(2, n + 1):
            i = np.arange(n - d + 1)[:, None]
            k = i + np.arange(1, d)
            pairs = table[..., i, k, :][..., self.left] & table[..., k, i + d, :][..., self.right]
            table[..., i[:, 0], i[:, 0] + d, :] = _bool_matmul(np.any(pairs, axis=-2), self.over)
        return table

    def outside(self, inside: np.ndarray, ends: Sequence[int]) -> np.ndarray:
        """bool [n + 1, n + 1, N]: which symbols become the places from i to j - 1 in some text of the grammar that ends before
        one of the places `ends`. inside: bool [n + 1, n + 1, N]"""
        n = inside.shape[0] - 1
        table = np.zeros_like(inside)
        table[0, [x for x in ends if x], self.start] = inside[0, [x for x in ends if x], self.start]
        for d in range(n, 0, -1):
            starts = np.arange(n - d + 1)
            needed = _bool_matmul(table[starts, starts + d], self.under) & inside[starts, starts + d]
            table[starts, starts + d] = needed
            if d < 2:
                break
            i = starts[:, None]
            k = i + np.arange(1, d)
            hit = (
                inside[i, k][..., self.left]
                & inside[k, i + d][..., self.right]
                & needed[:, None][..., self.heads]
            )
            table[i, k] |= _bool_matmul(hit, _one_hot(self.left, len(self.under)))
            table[k, i + d] |= _bool_matmul(hit, _one_hot(self.right, len(self.under)))
        return table

    def derive_terminals(self, inside: np.ndarray, base: np.ndarray, end: int) -> list[int]:
        """The terminals, by number, of a text of the grammar at the places before `end`; by `inside` such a text exists."""
        leaves, open_ = [0] * end, [(0, end, self.start)] if end else []
        while open_:
            i, j, symbol = open_.pop()
            if j == i + 1:
                leaves[i] = int(np.flatnonzero(base[i] & self.leaf[:, symbol])[0])
                continue
            for p in np.flatnonzero(self.over[:, symbol]):
                split = inside[i, i + 1 : j, self.left[p]] & inside[i + 1 : j, j, self.right[p]]
                if split.any():
                    k = i + 1 + int(split.argmax())
                    open_ += [(i, k, int(self.left[p])), (k, j, int(self.right[p]))]
                    break
        return leaves


class Language:
    """The canvases that a grammar allows: those with open places that can be filled so that a text of it results. A text ends
    before the first token of `ends`, or with the canvas; what comes after its end is not part of it.

    terminals: the ids that each terminal may be, none of them an end;  canvases are lists of ids, OPEN where none is settled
    """

    def __init__(
        self, grammar: ContextFreeGrammar, terminals: Sequence[Sequence[int]], ends: Collection[int]
    ):
        self.grammar, self.ends = grammar, frozenset(ends)
        self.terminals = [[x for x in ids if x not in self.ends] for ids in terminals]
        self._some = np.array([bool(x) for x in self.terminals], bool)
        self._of: dict[int, np.ndarray] = {}
        for t, ids in enumerate(self.terminals):
            for token in ids:
                self._of.setdefault(token, np.zeros(len(self.terminals), bool))[t] = True
        self._none = np.zeros(len(self.terminals), bool)

    def base(self, canvas: Sequence[int]) -> np.ndarray:
        """bool [n, T]: which terminals each place can be."""
        rows = [self._some if x == OPEN else self._of.get(x, self._none) for x in canvas]
        return np.array(rows, bool).reshape(len(rows), len(self.terminals))

    def may_end(self, token: int) -> bool:
        """True if a text can end before this token, which may be OPEN."""
        return token in self.ends or (token == OPEN and bool(self.ends))

    def end_places(self, canvas: Sequence[int], inside: np.ndarray) -> list[int]:
        """The places before which a text can end, ascending."""
        able = [i for i, x in enumerate(canvas) if self.may_end(x)] + [len(canvas)]
        return [i for i in able if (inside[0, i, self.grammar.start] if i else self.grammar.empty)]

    def fits(self, canvas: Sequence[int]) -> bool:
        """True if a text of the grammar can still be made of it."""
        return bool(self.end_places(canvas, self.grammar.inside(self.base(canvas))))

    def witness(self, canvas: Sequence[int]) -> list[int] | None:
        """Such a text, the shortest; None: there is none."""
        base = self.base(canvas)
        inside = self.grammar.inside(base)
        ends = self.end_places(canvas, inside)
        if not ends:
            return None
        derived = self.grammar.derive_terminals(inside, base, ends[0])
        return [self.terminals[t][0] if x == OPEN else x for t, x in zip(derived, canvas, strict=False)]

    def allowed_tokens(self, canvas: Sequence[int], places: Sequence[int], vocab: int) -> np.ndarray:
        """bool [O, V]: which tokens each of the open `places` (by number in the canvas) can have so that it still fits."""
        inside = self.grammar.inside(self.base(canvas))
        ends = self.end_places(canvas, inside)
        outside, least = self.grammar.outside(inside, ends), min(ends, default=len(canvas))
        may = np.zeros((len(places), vocab), bool)
        for row, i in zip(may, places, strict=True):
            if i > least:
                row[:] = True  # after the end of a text
                continue
            for t in np.flatnonzero(outside[i, i + 1, self.grammar.terminals]):
                row[self.terminals[t]] = True
            if i == least or i in ends:
                row[[x for x in self.ends if x < vocab]] = True
        return may

    def joint_conflicts(self, canvas: Sequence[int], tokens: Sequence[tuple[int, int]]) -> list[int]:
        """Of (place, token), settled one after another in this order, those by number that are refused: with what was settled
        before them no text of the grammar is left."""
        whole = list(canvas)
        for place, token in tokens:
            whole[place] = token
        if self.fits(whole):
            return []
        whole, refused = list(canvas), []
        for i, (place, token) in enumerate(tokens):
            whole[place] = token
            if not self.fits(whole):
                whole[place] = OPEN
                refused.append(i)
        return refused


@lru_cache(maxsize=16)
def parse_grammar(text: str) -> ContextFreeGrammar:
    """The grammar of a shipped name, or of a text. Raises GrammarError."""
    return ContextFreeGrammar(text)


def _expand_rules(text: str) -> _ExpandedRules:
    if len(text) > LONGEST:
        raise GrammarError(
            f"The grammar has {len(text)} characters, at most {LONGEST} are taken: shorten it."
        )
    writer = _Writer()
    try:
        writer.transform(_notation_parser().parse(text))
    except UnexpectedInput as error:
        where = f"line {error.line}, column {error.column}" if error.line and error.line > 0 else "its end"
        raise GrammarError(
            f'The grammar cannot be read at {where}: write rules such as start: "(" start ")" | /[0-9]/, or one of the '
            f"names {', '.join(SHIPPED)}."
        ) from None
    except VisitError as error:
        if isinstance(error.orig_exc, GrammarError):
            raise error.orig_exc from None
        raise
    except RecursionError:
        raise GrammarError(
            "The grammar has too many brackets inside each other: write some of them as rules."
        ) from None
    written = writer.written
    known = {*written.rules, *written.terminals}
    missing = sorted(
        {x for rules in written.rules.values() for one in rules for x in one} - known | ({"start"} - known)
    )
    if missing:
        raise GrammarError(f"The grammar does not say what {missing[0]} is: add a rule {missing[0]}: ...")
    for name in (x for x in writer.named if x.isupper()):
        if not _is_one(written, name, set()):
            raise GrammarError(
                f"The grammar's terminal {name} is more than one token: write its parts into a rule, in small letters."
            )
    return written


def _is_one(written: _ExpandedRules, name: str, seen: set[str]) -> bool:
    """True if a symbol always becomes one token, whatever is chosen."""
    if name in written.terminals:
        return True
    if name in seen:
        return False
    return all(len(one) == 1 and _is_one(written, one[0], {*seen, name}) for one in written.rules[name])


def _nullable_symbols(rules: dict[str, list[tuple[str, ...]]]) -> set[str]:
    """The symbols that may become nothing."""
    known: set[str] = set()
    while True:
        more = {name for name, many in rules.items() if any(all(x in known for x in one) for one in many)}
        if more == known:
            return known
        known = more


def _matches_terminal(text: str, name: str, bare: str) -> bool:
    if name.startswith("/"):
        return re.fullmatch(text[1:-1], bare[:64]) is not None
    return text == bare


def _bool_matmul(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    """bool [..., B]: what any of the marked rows of `table`, bool [A, B], has. rows: bool [..., A]"""
    return (rows.astype(np.float32) @ table.astype(np.float32)) > 0


def _one_hot(which: np.ndarray, count: int) -> np.ndarray:
    """bool [P, N]: of each rule the symbol `which`."""
    chosen: np.ndarray = np.arange(count) == which[:, None]
    return chosen
