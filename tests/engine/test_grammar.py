"""Grammars: the tables agree with enumeration on every canvas, and with Lark on what a text is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce
from itertools import product
from operator import and_

import numpy as np
import pytest
from lark import Lark, LarkError
from sizes import sizes

from decodescope.engine.trace.values.grammar import (
    OPEN,
    SHIPPED,
    ContextFreeGrammar,
    GrammarError,
    Language,
    parse_grammar,
)

NUMBERS = """
start: value          // a comment
value: "3" | list
list: "1" [value ("0" value)*] "2"
"""
GRAMMARS = {  # a grammar, and its alphabet: the text of each id
    "brackets": (SHIPPED["brackets"], ["(", ")", "[", "]"]),
    "sums": (SHIPPED["sums"], ["7", "+", "(", ")"]),
    "lists": (NUMBERS, ["0", "1", "2", "3"]),
    "even": ('start: ("a" "a")*\n', ["a", "b"]),
    "palindromes": ('start: "a" start "a" | "b" start? "b" |\n', ["a", "b"]),
    "ambiguous": ('start: start start | X+ | [y X]\n  | "c"\ny: "b"\nX: "a" | /[xa]/\n', ["a", "b", "c"]),
}


def language(name: str) -> tuple[Language, int]:
    """The language over the alphabet's ids, and the id that ends a text."""
    text, alphabet = GRAMMARS[name]
    made = ContextFreeGrammar(text)
    ids: list[list[int]] = [[] for _ in made.names]
    for token, one in enumerate(alphabet):
        for t in made.matching_terminals(one):
            ids[t].append(token)
    return Language(made, ids, [len(alphabet)]), len(alphabet)


def texts(name: str, most: int) -> set[tuple[int, ...]]:
    """All texts of the language with at most `most` tokens, by Lark."""
    text, alphabet = GRAMMARS[name]
    parser, found = Lark(text, parser="earley"), set()
    for n in range(most + 1):
        for one in product(range(len(alphabet)), repeat=n):
            try:
                parser.parse("".join(alphabet[x] for x in one))
                found.add(one)
            except LarkError:
                pass
    return found


class Known:
    """A set of texts as bit masks, one bit per text: the token at each place of a canvas selects the texts that still fit."""

    def __init__(self, known: set[tuple[int, ...]], end: int):
        self.known, self.end = sorted(known), end
        self.fits_at = cache(self._fits_at)
        longest = max(map(len, known))
        self.long = [self._those(lambda text, n=n: len(text) == n) for n in range(longest + 1)]

    def _those(self, fits: Callable[[tuple[int, ...]], bool]) -> int:
        return sum(1 << i for i, text in enumerate(self.known) if fits(text))

    def _fits_at(self, at: int, x: int) -> int:
        """The texts that fit a canvas with `x` at place `at`, as far as that place says."""
        ends = x in (OPEN, self.end)
        return self._those(lambda text: x in (OPEN, text[at]) if at < len(text) else ends or at > len(text))

    def lengths(self, canvas: tuple[int, ...]) -> list[int]:
        """The lengths of the texts that the canvas can become."""
        fitting = reduce(and_, (self.fits_at(at, x) for at, x in enumerate(canvas)))
        return [n for n, those in enumerate(self.long) if those & fitting and n <= len(canvas)]


@pytest.mark.parametrize("name", GRAMMARS)
@sizes("most", usual=5, full=8)
def test_a_canvas_fits_where_enumeration_finds_a_filling(name: str, most: int) -> None:
    made, end = language(name)
    most = min(most, 8 if end < 4 else 7) if most > 5 else most
    known, fitting = Known(texts(name, most), end), 0
    for n in range(1, most + 1):
        canvases = list(product([OPEN, *range(end + 1)], repeat=n))
        for at in range(0, len(canvases), 4096):
            some = canvases[at : at + 4096]
            inside = made.grammar.inside(np.stack([made.base(x) for x in some]))
            for canvas, table in zip(some, inside, strict=True):
                ends = made.end_places(canvas, table)
                assert known.lengths(canvas) == ends, canvas
                fitting += bool(ends)
    assert fitting > 20 and len(known.known) > 2


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_token_is_allowed_where_the_canvas_fits_with_it(name: str) -> None:
    made, end = language(name)
    refused = 0
    for n in range(1, 5):
        for canvas in product([OPEN, *range(end + 1)], repeat=n):
            places = [i for i, x in enumerate(canvas) if x == OPEN]
            if not made.fits(canvas):
                assert made.witness(canvas) is None
                continue
            witness = made.witness(canvas)
            assert witness is not None and made.fits([*witness, end])
            assert all(x in (OPEN, y) for x, y in zip(canvas, witness, strict=False))
            assert len(witness) == n or canvas[len(witness)] in (OPEN, end)
            for i, row in zip(places, made.allowed_tokens(canvas, places, end + 1), strict=True):
                due = [made.fits([*canvas[:i], token, *canvas[i + 1 :]]) for token in range(end + 1)]
                assert row.tolist() == due, (canvas, i)
                refused += not all(due)
    assert refused > 5, "the test needs tokens that are refused"


def test_tokens_that_fit_alone_may_not_fit_together() -> None:
    made, end = language("brackets")
    assert all(made.fits(x) for x in ([0, OPEN, OPEN, OPEN], [OPEN, 0, OPEN, OPEN], [OPEN, OPEN, 0, OPEN]))
    assert made.joint_conflicts([OPEN] * 4, [(0, 0), (2, 0), (1, 0), (3, 1)]) == [2]
    assert made.joint_conflicts([OPEN] * 4, [(0, 0), (1, 0), (2, 1)]) == []
    assert made.joint_conflicts([OPEN] * 4, [(2, end), (3, 0), (0, 1), (1, 3)]) == [2], (
        "behind an end anything stands"
    )


def test_without_a_token_that_ends_it_a_text_is_as_long_as_its_canvas() -> None:
    made, end = language("brackets")
    endless = Language(made.grammar, made.terminals, [])
    for n in range(1, 5):
        whole = {x for x in texts("brackets", n) if len(x) == n}
        known = Known(whole, -2) if whole else None
        for canvas in product([OPEN, *range(end)], repeat=n):
            places = [i for i, x in enumerate(canvas) if x == OPEN]
            assert endless.fits(canvas) == bool(known and known.lengths(canvas))
            for i, row in (
                zip(places, endless.allowed_tokens(canvas, places, end), strict=True)
                if endless.fits(canvas)
                else ()
            ):
                assert row.tolist() == [endless.fits([*canvas[:i], x, *canvas[i + 1 :]]) for x in range(end)]


def test_long_canvases_and_terminals_by_text() -> None:
    made, end = language("sums")
    canvas = [OPEN] * 60
    canvas[0], canvas[59] = 2, 3
    witness = made.witness(canvas)
    assert witness is not None and made.fits([*witness, end])
    read = parse_grammar("lists")
    assert read is parse_grammar("lists")
    assert [read.matching_terminals(x) for x in (" Hugo", "Hugo", "hugo", " H", "Hugo Ben", "", " ")] == [
        [0],
        [0],
        [],
        [],
        [],
        [],
        [],
    ]
    exact = ContextFreeGrammar('start: "a b" | "\\"" | "\\n"')
    assert [exact.matching_terminals(x) for x in ("a b", " a b", '"', "\n")] == [[0], [], [1], [2]]


@pytest.mark.parametrize(("text", "said"), [
    ("start: a", r"does not say what a is: add a rule"),
    ('a: "x"', r"does not say what start is"),
    ('start: "x" )', r"cannot be read at line 1, column 12: write rules such as"),
    ('start: "x"\nstart: "y"', r"says twice what start is"),
    ("start: /(a+)+b/", r"pattern /\(a\+\)\+b/ is more than characters and \[classes\]"),
    ('start: A\nA: "x" "y"', r"terminal A is more than one token"),
    ("start: A\nA: A", r"terminal A is more than one token"),
    ('start: "x"\n%ignore "y"', r"only blanks can be ignored"),
    ('%import common.WORD\nstart: "x"', r"cannot be read at line 1"),
    ('start: "x" ' * 400, r"has 4400 characters, at most 2000"),
    ("start: " + '"a" ' * 200, r"rules once they are written out, at most 120"),
    ("", r"does not say what start is"),
])  # fmt: skip
def test_what_cannot_be_read_is_said_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(GrammarError, match=said):
        ContextFreeGrammar(text)
