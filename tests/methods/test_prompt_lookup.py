"""Prompt lookup: the matcher agrees with a plain search, and a repeated block is drafted whole."""

from __future__ import annotations

import random

import pytest
import toys

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.methods.drafters.shared.ngrams import SuffixIndex


def searched(text: list[int], ngram: int, length: int, match: str) -> list[int]:
    """The definition as a search: longest suffix first; the tokens after its latest (first) earlier occurrence."""
    for n in range(min(ngram, len(text) - 1), 0, -1):
        places = [i for i in range(len(text) - n) if text[i : i + n] == text[-n:]]
        if places:
            at = (places[-1] if match == "latest" else places[0]) + n
            return text[at : at + length]
    return []


def context(text: list[int], room: int = 99) -> Context:
    return Context(text, None, {}, None, None, None, room, 1)  # type: ignore[arg-type] # only the text is used


@pytest.mark.parametrize("match", ["latest", "first"])
@pytest.mark.parametrize(("ngram", "length"), [(1, 1), (2, 4), (3, 10), (5, 3)])
def test_matcher_equals_a_plain_search(ngram: int, length: int, match: str) -> None:
    chance, found = random.Random(ngram * length), 0
    for _ in range(60):
        text = [chance.randrange(4) for _ in range(2)]
        drafter = build("drafter", "prompt_lookup", dict(ngram=ngram, max_draft_tokens=length, match=match))
        drafter.begin(context(text))
        while len(text) < 40:
            draft, room = drafter.propose(context(text, room := chance.randrange(1, 12))), room
            due = searched(text, ngram, min(length, room), match)
            assert draft.tokens == due
            if due:
                start, end = draft.notes["span"]
                assert (
                    text[start:end] == text[len(text) - draft.notes["ngram"] :]
                    and text[end : end + len(due)] == due
                )
            found += bool(due)
            text += [chance.randrange(4) for _ in range(chance.randrange(1, 4))]
    assert found > 300


def test_index_lists_every_occurrence() -> None:
    text = [1, 2, 1, 2, 1, 2]
    index = SuffixIndex(2)
    index.extend(text[:3]), index.extend(text)
    assert index.ends([2]) == [2, 4, 6] and index.ends([1, 2]) == [2, 4, 6] and index.ends([2, 1]) == [3, 5]
    assert not index.ends([3]) and not SuffixIndex(2).ends([1])


class Counted(list[int]):
    """A text that counts the tokens read from it."""

    read = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        self.read += len(found) if isinstance(at, slice) else 1
        return found


def test_a_proposal_costs_no_more_in_a_longer_text() -> None:
    """One token repeated, which gives the most possible matches.

    Every further token causes equally few reads, and the places found are the index's own list, not a copy.
    """
    text = Counted([3] * 50)
    drafter = build("drafter", "prompt_lookup", dict(ngram=3, max_draft_tokens=4, match="first"))
    drafter.begin(context(text))
    drafter.propose(context(text))
    costs = set()
    for _ in range(500):
        before = text.read
        text.append(3)
        assert drafter.propose(context(text)).tokens == [3, 3, 3, 3]
        costs.add(text.read - before)
    assert len(costs) == 1 and costs.pop() < 20
    assert drafter._index.ends([3, 3]) is drafter._index.ends((3, 3))


def test_repeated_block_reaches_full_acceptance() -> None:
    """A target that writes a loop: once the text contains a period, whole drafts are accepted."""
    looping = toys.target(seed=4)  # its greedy text ends in one repeated token
    prompt = toys.prompts(1, 10)[0]
    session = toys.decode(
        toys.method(drafter=("prompt_lookup", {"max_draft_tokens": 6, "ngram": 3})),
        prompt,
        60,
        pair=(looping, looping),
    )
    assert len(set(session.end.tokens[-20:])) == 1, "the test needs a loop"
    late = [step for step in session.sink.steps if step.drafted][-6:-1]
    assert late and all(step.accepted == step.drafted for step in late)
