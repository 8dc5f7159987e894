"""Suffix array: the order is that of the suffixes, and every n-gram is found where a plain search finds it."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest

from decodescope.engine.methods.drafters.shared.suffix_array import DEPTH, SuffixArray


def searched(ids: list[int], ngram: list[int]) -> list[int]:
    return [i for i in range(len(ids) - len(ngram) + 1) if ids[i : i + len(ngram)] == ngram]


def texts() -> list[list[int]]:
    chance = random.Random(7)
    made = [
        [chance.randrange(vocab) for _ in range(size)] for vocab in (1, 2, 5, 300) for size in (1, 2, 17, 400)
    ]
    return [*made, [1, 2, 3] * 100, [5, 5, -1, 5, 5, -1]]


@pytest.mark.parametrize("ids", texts(), ids=lambda x: f"{len(set(x))} ids, {len(x)} tokens")
def test_order_is_that_of_the_suffixes(ids: list[int]) -> None:
    assert SuffixArray(ids).order.tolist() == sorted(range(len(ids)), key=lambda i: (ids[i : i + DEPTH], i))


@pytest.mark.parametrize("ids", texts(), ids=lambda x: f"{len(set(x))} ids, {len(x)} tokens")
def test_hits_equal_a_plain_search(ids: list[int]) -> None:
    array, chance, found = SuffixArray(ids), random.Random(1), 0
    for _ in range(80):
        n = chance.randrange(1, 8)
        at = chance.randrange(len(ids))
        ngram = ids[at : at + n] if chance.random() < 0.6 else [chance.choice(ids) for _ in range(n)]
        low, high = array.find(ngram)
        assert sorted(array.order[low:high].tolist()) == searched(ids, ngram)
        found += high > low
    assert found > 20


def test_longest_suffix_is_the_longest_one_that_a_search_finds() -> None:
    chance, lengths = random.Random(3), set()
    ids = [chance.randrange(3) for _ in range(60)]
    array = SuffixArray(ids)
    for _ in range(200):
        text = [chance.randrange(4) for _ in range(chance.randrange(12))]
        due = max((n for n in range(2, min(9, len(text)) + 1) if searched(ids, text[-n:])), default=0)
        n, low, high = array.find_longest(text, 9, 2)
        assert n == due
        assert sorted(array.order[low:high].tolist()) == (searched(ids, text[-n:]) if n else [])
        lengths.add(n)
    assert len(lengths) >= 4


def test_banana_by_hand() -> None:
    """b a n a n a: the suffixes in order are a, ana, anana, banana, na, nana."""
    array = SuffixArray([2, 1, 14, 1, 14, 1])
    assert array.order.tolist() == [5, 3, 1, 0, 4, 2]
    assert array.find([1, 14]) == (1, 3) and array.find([14, 1, 14]) == (5, 6) and array.find([3]) == (4, 4)


def test_what_follows_ends_with_the_document() -> None:
    array = SuffixArray([4, 1, 2, 3, -1, 4, 1])
    assert array.windows(np.array([0, 5]), 1, 5).tolist() == [[1, 2, 3, -1, -1], [1, -1, -1, -1, -1]]


def test_nothing_is_found_in_an_empty_text() -> None:
    assert SuffixArray([]).find_longest([1, 2, 3], 3) == (0, 0, 0) and SuffixArray([]).find([1]) == (0, 0)


@pytest.mark.parametrize("length", [0, DEPTH + 1])
def test_an_ngram_of_a_length_that_is_not_ordered_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=rf"of {length} tokens .* must have 1 to {DEPTH}\.$"):
        SuffixArray([1, 2, 3]).find([1] * length)


def test_copies_share_it() -> None:
    array = SuffixArray([1, 2, 3])
    assert copy.deepcopy(array) is array
