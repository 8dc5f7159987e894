"""Prompt lookup: the matcher does what a plain search does, and a repeated block is drafted whole."""

from __future__ import annotations

import random

import pytest
import toys
from decodescope.engine.component import build
from decodescope.engine.drafters.base import Context
from decodescope.engine.ngrams import SuffixIndex


def searched(text: list[int], ngram: int, length: int, match: str) -> list[int]:
    """The sheet's words, as a search: longest suffix first; what followed its latest (first) earlier occurrence."""
    for n in range(min(ngram, len(text) - 1), 0, -1):
        places = [i for i in range(len(text) - n) if text[i : i + n] == text[-n:]]
        if places:
            at = (places[-1] if match == "latest" else places[0]) + n
            return text[at : at + length]
    return []


def context(text: list[int], room: int = 99) -> Context:
    return Context(text, None, {}, None, None, None, room, 1)  # type: ignore[arg-type] # it looks at the text alone


@pytest.mark.parametrize("match", ["latest", "first"])
@pytest.mark.parametrize(("ngram", "length"), [(1, 1), (2, 4), (3, 10), (5, 3)])
def test_matcher_equals_a_plain_search(ngram: int, length: int, match: str) -> None:
    chance, found = random.Random(ngram * length), 0
    for _ in range(60):
        text = [chance.randrange(4) for _ in range(2)]
        drafter = build("drafter", "prompt_lookup", dict(ngram=ngram, length=length, match=match))
        drafter.begin(context(text))
        while len(text) < 40:
            draft, room = drafter.propose(context(text, room := chance.randrange(1, 12))), room
            due = searched(text, ngram, min(length, room), match)
            assert draft.tokens == due
            if due:
                start, end = draft.notes["span"]
                assert text[start:end] == text[len(text) - draft.notes["ngram"] :] and text[end : end + len(due)] == due
            found += bool(due)
            text += [chance.randrange(4) for _ in range(chance.randrange(1, 4))]
    assert found > 300


def test_index_lists_every_earlier_occurrence() -> None:
    text = [1, 2, 1, 2, 1, 2]
    index = SuffixIndex(2)
    index.extend(text[:3]), index.extend(text)
    assert index.earlier(1) == [2, 4] and index.earlier(2) == [2, 4] and SuffixIndex(2).earlier(1) == []


def test_repeated_block_reaches_full_acceptance() -> None:
    """A target that writes a loop: once a period stands in the text, whole drafts are accepted."""
    looping = toys.target(seed=4)  # its greedy text ends in one token, again and again
    prompt = toys.prompts(1, 10)[0]
    session = toys.decode(
        toys.method(drafter=("prompt_lookup", {"length": 6, "ngram": 3})), prompt, 60, pair=(looping, looping)
    )
    assert len(set(session.end.tokens[-20:])) == 1, "the test needs a loop"
    late = [step for step in session.sink.steps if step.drafted][-6:-1]
    assert late and all(step.accepted == step.drafted for step in late)
