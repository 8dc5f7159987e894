"""Token automaton: a regular expression as a deterministic automaton whose steps are the tokens of a model.

A masking library decides which tokens fit, but it has no states that can be counted. A method that weighs all ways to finish a
text needs such states, so this module makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.params import ParamError

from ..values.alphabet import Alphabet

PARTS = 20_000  # states before they are made deterministic
STATES = 1000  # states of a format
WORK = 4_000_000  # steps that are looked at to make a format deterministic
TOO_LARGE = "the format is too large: repeat less, with smaller numbers in braces."
TABLE = 1 << 25  # steps of a format: states x tokens
REPEATS = 200  # the largest number in {m,n}
DEEP = 50  # groups inside each other
ASCII = (1 << 128) - 1  # a set of bytes is an int with one bit a byte
BEHIND = ((1 << 64) - 1) << 128  # bytes 80 to BF, which continue a character
# first bytes of the characters of 2, 3 and 4 bytes; a second byte has a smaller range after E0, ED, F0 and F4
WIDE = ((0xC2, 0xDF, 0x80, 0xBF, 0), (0xE0, 0xE0, 0xA0, 0xBF, 1), (0xE1, 0xEC, 0x80, 0xBF, 1), (0xED, 0xED, 0x80, 0x9F, 1),
    (0xEE, 0xEF, 0x80, 0xBF, 1), (0xF0, 0xF0, 0x90, 0xBF, 2), (0xF1, 0xF3, 0x80, 0xBF, 2),
    (0xF4, 0xF4, 0x80, 0x8F, 2))  # fmt: skip


def _range(low: int, high: int) -> int:
    return ((1 << (high + 1)) - 1) ^ ((1 << low) - 1)


def _set_of(letters: str) -> int:
    return sum(1 << ord(x) for x in letters)


CLASSES = {
    "d": _set_of("0123456789"),
    "s": _set_of(" \t\n\r\f\v"),
    "w": _range(48, 57) | _range(65, 90) | _range(97, 122) | 1 << 95,
}
ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
Part = Callable[
    ["_ByteSteps", int], int
]  # adds a part of a format after a state, and returns the state behind it


class _ByteSteps:
    """A nondeterministic automaton over bytes: steps[i] holds (set of bytes, next state), free[i] next states without one."""

    def __init__(self) -> None:
        self.steps: list[list[tuple[int, int]]] = []
        self.free: list[list[int]] = []

    def new_state(self) -> int:
        if len(self.steps) >= PARTS:
            raise ParamError(TOO_LARGE)
        self.steps.append([])
        self.free.append([])
        return len(self.steps) - 1

    def step(self, state: int, letters: int) -> int:
        """The state behind one byte of a set."""
        after = self.new_state()
        self.steps[state].append((letters, after))
        return after

    def reachable(self, states: set[int]) -> frozenset[int]:
        """These states, and all that follow without a byte."""
        closure, waiting = set(states), list(states)
        while waiting:
            for after in self.free[waiting.pop()]:
                if after not in closure:
                    closure.add(after)
                    waiting.append(after)
        return frozenset(closure)


def _sequence(parts: list[Part]) -> Part:
    def build(b: _ByteSteps, state: int) -> int:
        for part in parts:
            state = part(b, state)
        return state

    return build


def _choice(parts: list[Part]) -> Part:
    def build(b: _ByteSteps, state: int) -> int:
        end = b.new_state()
        for part in parts:
            begin = b.new_state()
            b.free[state].append(begin)
            b.free[part(b, begin)].append(end)
        return end

    return parts[0] if len(parts) == 1 else build


def _repeat(part: Part, least: int, most: int | None) -> Part:
    def build(b: _ByteSteps, state: int) -> int:
        for _ in range(least):
            state = part(b, state)
        end = b.new_state()
        if most is None:
            begin = b.new_state()
            b.free[state].append(begin)
            b.free[begin].append(end)
            b.free[part(b, begin)].append(begin)
            return end
        b.free[state].append(end)
        for _ in range(most - least):
            state = part(b, state)
            b.free[state].append(end)
        return end

    return build


def _letters(ascii: int, wide: bool = False) -> Part:
    """One character: of a set of ASCII characters, or, if `wide`, any that is not ASCII."""

    def one(b: _ByteSteps, state: int) -> int:
        return b.step(state, ascii)

    def build(b: _ByteSteps, state: int) -> int:
        end = one(b, state)
        for low, high, low2, high2, more in WIDE:
            now = b.step(b.step(state, _range(low, high)), _range(low2, high2))
            for _ in range(more):
                now = b.step(now, BEHIND)
            b.free[now].append(end)
        return end

    return build if wide else one


def _literal(letter: str) -> Part:
    return _sequence([_letters(1 << byte) for byte in letter.encode("utf-8")])


class _Reader:
    """Reads a format, character by character. Raises ParamError with the place of what it cannot read."""

    def __init__(self, text: str):
        self.text = text
        self.at = 0
        self.deep = 0

    def next_letter(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def take_letter(self) -> str:
        letter = self.next_letter()
        if not letter:
            raise self.fault("it ends too early")
        self.at += 1
        return letter

    def fault(self, why: str) -> ParamError:
        return ParamError(
            f"the format cannot be read at character {self.at}: {why}. It may hold characters, \\d \\w \\s \\n, . [a-z] "
            "[^a-z], groups (a|b), and * + ? {m} {m,} {m,n}; write \\ before a sign that is meant as itself."
        )

    def read_choice(self) -> Part:
        parts = [self.read_sequence()]
        while self.next_letter() == "|":
            self.at += 1
            parts.append(self.read_sequence())
        return _choice(parts)

    def read_sequence(self) -> Part:
        parts: list[Part] = []
        while self.next_letter() not in ("", "|", ")"):
            parts.append(self.read_repeats(self.read_one()))
        return _sequence(parts)

    def read_one(self) -> Part:
        letter = self.take_letter()
        if letter == "(":
            return self.read_group()
        if letter == "[":
            return self.read_set()
        if letter == ".":
            return _letters(ASCII ^ 1 << 10, wide=True)
        if letter == "\\":
            escaped = self.take_letter()
            if escaped in CLASSES:
                return _letters(CLASSES[escaped])
            return _literal(self.plain_escape(escaped))
        if letter in "*+?{}]":
            raise self.fault(f"{letter!r} stands where a character is due")
        return _literal(letter)

    def plain_escape(self, escaped: str) -> str:
        if escaped.isascii() and escaped.isalnum() and escaped not in ESCAPED:
            raise self.fault(f"\\{escaped} is not known")
        return ESCAPED.get(escaped, escaped)

    def read_group(self) -> Part:
        self.deep += 1
        if self.deep > DEEP:
            raise self.fault(f"more than {DEEP} groups are inside each other")
        if self.text.startswith("?:", self.at):
            self.at += 2
        part = self.read_choice()
        if self.next_letter() != ")":
            raise self.fault("a group is not closed")
        self.at += 1
        self.deep -= 1
        return part

    def read_set(self) -> Part:
        others = self.next_letter() == "^"
        self.at += others
        letters, first = 0, True
        while first or self.next_letter() != "]":
            first = False
            letters |= self.read_range()
        self.at += 1
        return _letters(ASCII & ~letters, wide=True) if others else _letters(letters)

    def read_range(self) -> int:
        low = self.take_letter()
        if low == "\\":
            low = self.take_letter()
            if low in CLASSES:
                return CLASSES[low]
            low = self.plain_escape(low)
        high = low
        if self.next_letter() == "-" and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
            self.at += 1
            high = self.take_letter()
            high = self.plain_escape(self.take_letter()) if high == "\\" else high
        if not (low.isascii() and high.isascii()) or low > high:
            raise self.fault("a set holds ASCII characters and ranges of them, the smaller one first")
        return _range(ord(low), ord(high))

    def read_repeats(self, part: Part) -> Part:
        letter = self.next_letter()
        if letter and letter in "*+?":
            self.at += 1
            return _repeat(part, int(letter == "+"), 1 if letter == "?" else None)
        if letter != "{":
            return part
        inside, closed, _ = self.text[self.at + 1 : self.at + 12].partition("}")
        least, comma, most = inside.partition(",")
        numbers = [x for x in (least, most) if x]
        if (
            not closed
            or not least
            or not all(x.isascii() and x.isdigit() and int(x) <= REPEATS for x in numbers)
        ):
            raise self.fault(f"braces hold numbers of at most {REPEATS}")
        self.at += len(inside) + 2
        low = int(least)
        high = (int(most) if most else None) if comma else low
        if high is not None and high < low:
            raise self.fault("the second number in braces is the smaller one")
        return _repeat(part, low, high)


@dataclass(frozen=True)
class ByteAutomaton:
    """A deterministic automaton over bytes. State 0 begins; -1 is where no text of the format can follow.

    after: int32 [Q, 256];  accepts: bool [Q]
    """

    after: np.ndarray
    accepts: np.ndarray


@lru_cache(maxsize=16)
def build_byte_automaton(text: str) -> ByteAutomaton:
    """The automaton of a format, without states that lead to no text of it.

    Raises ParamError for a format that cannot be read, is too large, or has no text.
    """
    reader, nfa = _Reader(text), _ByteSteps()
    part = reader.read_choice()
    if reader.next_letter():
        raise reader.fault("a group is closed that was not opened")
    begin = nfa.new_state()
    end = part(nfa, begin)
    first = nfa.reachable({begin})
    known, waiting = {first: 0}, [first]
    rows: list[np.ndarray] = []
    work = 0
    while waiting:
        here, row = waiting.pop(0), np.full(256, -1, np.int32)
        pairs = [pair for state in here for pair in nfa.steps[state]]
        groups = _split_bytes([letters for letters, _ in pairs])
        work += len(here) + len(pairs) * len(groups)
        if work > WORK:
            raise ParamError(TOO_LARGE)
        for letters, group in groups:
            there = nfa.reachable({after for (x, after) in pairs if x & letters})
            if there not in known:
                if len(known) >= STATES:
                    raise ParamError(
                        f"the format has more than {STATES} states: repeat less, with smaller numbers in braces."
                    )
                known[there] = len(known)
                waiting.append(there)
            row[group] = known[there]
        rows.append(row)
    return _remove_dead_ends(np.stack(rows), np.array([end in states for states in known]))


def _split_bytes(sets: list[int]) -> list[tuple[int, list[int]]]:
    """Groups of bytes in the same sets, each as (a set of one of its bytes, its bytes). Bytes in no set are left out."""
    groups: dict[tuple[int, ...], list[int]] = {}
    distinct = list(dict.fromkeys(sets))
    for byte in range(256):
        inside = tuple(i for i, letters in enumerate(distinct) if letters >> byte & 1)
        if inside:
            groups.setdefault(inside, []).append(byte)
    return [(1 << group[0], group) for group in groups.values()]


def _remove_dead_ends(after: np.ndarray, accepts: np.ndarray) -> ByteAutomaton:
    alive = accepts.copy()
    while True:
        more = alive | (alive[after] & (after >= 0)).any(1)
        if (more == alive).all():
            break
        alive = more
    if not alive[0]:
        raise ParamError("the format has no text: a set in it is empty.")
    number = np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int32)
    kept = np.where(after >= 0, number[after], -1)[alive]
    return _merge_states(kept, accepts[alive])


def _merge_states(after: np.ndarray, accepts: np.ndarray) -> ByteAutomaton:
    """Merge the states from which the same texts follow: split by what is behind each byte, until nothing splits."""
    group, count = accepts.astype(np.int64), 0
    while group.max() + 1 > count:
        count = group.max() + 1
        rows = np.concatenate([group[:, None], np.where(after >= 0, group[after], -1)], 1)
        group = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    firsts = np.sort(np.unique(group, return_index=True)[1])  # the first state of each group, state 0 first
    number = np.empty(len(firsts), np.int64)
    number[group[firsts]] = np.arange(len(firsts))
    merged = np.where(after >= 0, number[group[after]], -1)[firsts]
    return ByteAutomaton(merged.astype(np.int32), accepts[firsts])


@dataclass(frozen=True, eq=False)
class TokenAutomaton:
    """Steps by tokens. States 0 to Q - 1 are those of the format, 0 the first; `end` = Q is behind a stop token, and `dead` =
    Q + 1 behind a token after which no text of the format can follow.

    after: int64 [Q + 2, V], the state behind each token
    accepts: bool [Q + 2], whether the text may end here
    kinds: int64 [V], the kind of each token: tokens of one kind lead to the same state from everywhere
    kind_after: int64 [Q + 2, K], the state behind a token of each kind
    """

    after: Tensor
    accepts: Tensor
    kinds: Tensor
    kind_after: Tensor

    def __deepcopy__(self, memo: object) -> TokenAutomaton:
        return self

    @property
    def end(self) -> int:
        """The state behind a stop token."""
        return len(self.after) - 2

    @property
    def dead(self) -> int:
        """The state from which no text of the format follows."""
        return len(self.after) - 1


def build_token_automaton(text: str, alphabet: Alphabet) -> TokenAutomaton:
    """The automaton of a format over a model's tokens.

    A token fits if all its bytes do. A stop token fits where the text may end; tokens without a text of their own never fit.
    Raises ParamError as `build_byte_automaton` does, and for a table that would be too large.
    """
    return _build_over_tokens(text, tuple(alphabet.pieces), alphabet.stops, alphabet.marks)


@lru_cache(maxsize=4)
def _build_over_tokens(
    text: str, pieces: tuple[bytes, ...], stops: frozenset[int], marks: frozenset[int]
) -> TokenAutomaton:
    letters = build_byte_automaton(text)
    count, vocab = len(letters.accepts), len(pieces)
    if count * vocab > TABLE:
        raise ParamError(
            f"the format has {count} states, which is too much for {vocab} tokens: shorten it to {TABLE // vocab} states."
        )
    after = _token_steps(letters.after, pieces, stops | marks)
    end, dead = count, count + 1
    for stop in stops:
        after[:, stop] = np.where(letters.accepts, end, -1)
    full = np.full((count + 2, vocab), dead, np.int64)
    full[:count] = np.where(after < 0, dead, after)
    full[end] = end  # nothing is written there
    distinct, kinds = np.unique(full, axis=1, return_inverse=True)
    accepts = np.append(letters.accepts, [True, False])
    return TokenAutomaton(*map(torch.from_numpy, (full, accepts, kinds.reshape(-1), distinct)))


def _token_steps(after: np.ndarray, pieces: tuple[bytes, ...], special: frozenset[int]) -> np.ndarray:
    """int32 [Q, V]: the state behind each token's bytes, -1 for none. One step for each byte of the longest token."""
    silent = special | {i for i, piece in enumerate(pieces) if not piece or piece == b"<#%d>" % i}
    lengths = np.array([0 if i in silent else len(piece) for i, piece in enumerate(pieces)])
    order = np.argsort(-lengths, kind="stable")
    table = np.vstack([after, np.full((1, 256), -1, np.int32)])  # row -1 stays where it is
    states = np.repeat(
        np.arange(len(after), dtype=np.int32)[:, None], len(pieces), 1
    )  # [Q, V], longest token first
    for place in range(int(lengths.max(initial=0))):
        long = order[: int((lengths > place).sum())]
        bytes_here = np.array([pieces[i][place] for i in long])
        states[:, : len(long)] = table[states[:, : len(long)], bytes_here]
    states[:, int((lengths > 0).sum()) :] = -1
    steps = np.empty_like(states)
    steps[:, order] = states
    return steps
