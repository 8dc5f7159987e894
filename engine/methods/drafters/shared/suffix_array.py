"""Suffix array: all places of a long text, sorted by the tokens that follow, so that binary search finds any n-gram."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DEPTH = 128  # tokens by which places are ordered; longer n-grams are not found


class SuffixArray:
    """Places of a text, ordered by the next DEPTH tokens, then by place.

    - ids: int32 [n], the tokens; a negative id ends a document, and no n-gram is found across it
    - order: int32 [n], the places

    The order is built by doubling: sort by 1 token, then by 2, 4, ...; O(n log n) each time. The array never changes, so copies
    of its owner share it.
    """

    def __init__(self, ids: Sequence[int] | np.ndarray):
        self.ids = np.asarray(ids, dtype=np.int32).reshape(len(ids))
        self.order = _sort_places(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __deepcopy__(self, memo: object) -> SuffixArray:
        return self

    def find(self, ngram: Sequence[int]) -> tuple[int, int]:
        """(low, high): order[low:high] are the places where `ngram` (1 to DEPTH ids, none negative) occurs."""
        if not 0 < len(ngram) <= DEPTH:
            raise ValueError(f"an n-gram of {len(ngram)} tokens was looked for; it must have 1 to {DEPTH}.")
        wanted = list(ngram)
        low = self._first_row(wanted, 0, after=False)
        return low, self._first_row(wanted, low, after=True)

    def _first_row(self, wanted: list[int], low: int, *, after: bool) -> int:
        """The first row of the order, from `low` on, with a text not smaller than `wanted`.

        after: larger than all texts that begin with `wanted`.
        """
        high = len(self.order)
        while low < high:
            middle = (low + high) // 2
            at = self.order[middle]
            here = self.ids[at : at + len(wanted)].tolist()
            if here < wanted or (after and here == wanted):
                low = middle + 1
            else:
                high = middle
        return low

    def find_longest(self, text: Sequence[int], most: int, least: int = 1) -> tuple[int, int, int]:
        """(n, low, high) of the longest suffix of `text`, of `least` to `most` tokens, that occurs in the array; n = 0 if none.

        A suffix can only occur where the shorter ones occur, so binary search finds its length as well.
        """
        match = (0, 0, 0)
        low = least
        high = min(most, len(text))
        while low <= high:
            n = (low + high) // 2
            begin, end = self.find(text[len(text) - n :])
            if begin < end:
                match, low = (n, begin, end), n + 1
            else:
                high = n - 1
        return match

    def windows(self, places: np.ndarray, skip: int, length: int) -> np.ndarray:
        """int32 [len(places), length]: the ids from `skip` tokens behind `places` on; -1 from a document's end on."""
        at = places[:, None].astype(np.int64) + np.arange(skip, skip + length)  # [P, length]
        ids = np.where(at < len(self.ids), self.ids[np.minimum(at, len(self.ids) - 1)], -1)
        return np.where(np.logical_or.accumulate(ids < 0, axis=1), -1, ids)


def _sort_places(ids: np.ndarray) -> np.ndarray:
    """int32 [n]: places by their next DEPTH tokens, the end of the text being the smallest, then by place."""
    n = len(ids)
    order = np.argsort(ids, kind="stable")
    rank, width = np.zeros(n, dtype=np.int64), 1
    if n:
        rank[order[1:]] = np.cumsum(ids[order[1:]] != ids[order[:-1]])
    while width < DEPTH and n and rank[order[-1]] < n - 1:
        behind = np.zeros(n, dtype=np.int64)  # 0: past the end
        behind[: max(0, n - width)] = rank[width:] + 1
        key = rank * (n + 1) + behind
        order = np.argsort(key, kind="stable")
        rank[order[0]] = 0
        rank[order[1:]] = np.cumsum(key[order[1:]] != key[order[:-1]])
        width *= 2
    return order.astype(np.int32)
