"""Entropy coding: symbols in about as many bits as their frequencies say, many lanes at a time.

The coder is a range coder with one whole number as its state, last in, first out (asymmetric numeral systems: Duda 2013,
arXiv:1311.2540). Coding a symbol with frequency f of 2^16 makes the state 2^16 / f times larger. What no longer fits leaves
as words of 32 bits. Symbols go to the lanes in turn, and each step is one operation of numpy over all lanes. Only whole numbers
are used, so every machine reads the same symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

PRECISION = 16  # bits of a frequency: those of a context sum to 2^16
_LOW = np.uint64(1 << 31)  # a state is never below
_WORD, _BITS = np.uint64(32), np.uint64(PRECISION)
_MASK, _REST = np.uint64((1 << 32) - 1), np.uint64((1 << PRECISION) - 1)
_ROOM = np.uint64(63 - PRECISION)
_EACH = 4096  # symbols of a lane at least, so that its state of 8 bytes does not count
_LANES = 1024  # lanes at most


class EntropyError(ValueError):
    """What was read is not what was coded."""


class CodedSymbols(NamedTuple):
    """Coded symbols.

    states: uint64 [lanes], the final state of each lane; words: uint32 [W], the words that left the states, in the order in
    which they are read.
    """

    states: np.ndarray
    words: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return int(self.states.nbytes + self.words.nbytes)


def lane_count(count: int) -> int:
    """How many lanes code `count` symbols."""
    return min(max(count // _EACH, 1), _LANES) if count else 0


def symbol_frequencies(counts: np.ndarray) -> np.ndarray:
    """uint16 [contexts, S]: the frequency of each of S symbols (two at least) in a context, out of 2^16.

    counts: int64 of that shape. A symbol that occurred has 1 at least, one that did not has 0; a context that did not occur has
    zeros.
    """
    total = counts.sum(1, keepdims=True)
    shares = (counts << PRECISION) // np.maximum(total, 1)
    shares = np.where(counts > 0, np.maximum(shares, 1), 0)
    rows, most = np.arange(len(counts)), shares.argmax(1)
    shares[rows, most] += np.where(total[:, 0] > 0, (1 << PRECISION) - shares.sum(1), 0)
    # would not fit 16 bits: another symbol gets the smallest share
    alone = shares[rows, most] == 1 << PRECISION
    shares[rows[alone], most[alone]] -= 1
    shares[rows[alone], (most[alone] + 1) % counts.shape[1]] += 1
    return shares.astype(np.uint16)


def information(counts: np.ndarray) -> float:
    """Bits of all symbols that were counted (int64 [contexts, S]) under their shares in their contexts.

    No coder that knows these shares can use fewer.
    """
    total = np.broadcast_to(counts.sum(1, keepdims=True), counts.shape)
    seen = counts > 0
    return float(-(counts[seen] * np.log2(counts[seen] / total[seen])).sum())


def encode_symbols(symbols: np.ndarray, contexts: np.ndarray, table: np.ndarray) -> CodedSymbols:
    """Code symbols (integer [n]), each in its context (integer [n]), by the frequencies of `table`."""
    starts = _starts(table)
    states, words = np.full(lane_count(len(symbols)), _LOW, np.uint64), []
    for part, width in reversed(list(_steps(len(symbols)))):
        symbol = symbols[part]
        context = contexts[part]
        x = states[:width]
        share, start = table[context, symbol].astype(np.uint64), starts[context, symbol]
        full = x >= share << _ROOM
        words.append((x[full] & _MASK).astype(np.uint32))
        x = np.where(full, x >> _WORD, x)
        whole, rest = np.divmod(x, share)
        states[:width] = (whole << _BITS) + rest + start
    return CodedSymbols(states, np.concatenate(words[::-1]) if words else np.zeros(0, np.uint32))


def decode_symbols(coded: CodedSymbols, contexts: np.ndarray, table: np.ndarray) -> np.ndarray:
    """uint8 [n]: the symbols that were coded in these contexts (integer [n]).

    Raises EntropyError if words are missing or left over, or states do not end as they began, or a context that occurs has no
    frequencies.
    """
    count = len(contexts)
    starts = _starts(table)
    at = 0
    if (
        len(coded.states) != lane_count(count)
        or not (starts[np.unique(contexts), -1] == 1 << PRECISION).all()
    ):
        raise EntropyError
    symbols, states = np.empty(count, np.uint8), coded.states.copy()
    for part, width in _steps(count):
        context, x = contexts[part], states[:width]
        rest = x & _REST
        symbol = (starts[context, 1:] <= rest[:, None]).sum(1)
        symbols[part] = symbol
        x = table[context, symbol].astype(np.uint64) * (x >> _BITS) + rest - starts[context, symbol]
        low = x < _LOW
        words = coded.words[at : at + int(low.sum())]
        if len(words) < low.sum():
            raise EntropyError
        x[low] = (x[low] << _WORD) | words
        states[:width], at = x, at + len(words)
    if at != len(coded.words) or not (states == _LOW).all():
        raise EntropyError
    return symbols


def _starts(table: np.ndarray) -> np.ndarray:
    """uint64 [contexts, S + 1]: where the share of each symbol begins, and where the last ends."""
    starts = np.zeros((table.shape[0], table.shape[1] + 1), np.uint64)
    np.cumsum(table, 1, dtype=np.uint64, out=starts[:, 1:])
    return starts


def _steps(count: int) -> Iterator[tuple[slice, int]]:
    """The symbols of each step, one a lane, and how many they are."""
    width = lane_count(count)
    for at in range(0, count, width or 1):
        yield slice(at, min(at + width, count)), min(width, count - at)
