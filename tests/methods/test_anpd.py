"""ANPD: counts updated with every token equal counts from scratch, and drafts follow them token by token."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import toys

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.methods.drafters.shared.ngrams import NgramCounts


def context(text: list[int], room: int = 99) -> Context:
    return Context(text, None, {}, None, None, None, room, 1)  # type: ignore[arg-type] # only the text is used


def counted(text: list[int], longest: int) -> dict[tuple[int, ...], dict[int, int]]:
    """The definition: for every order from 2 to `longest`, how often each token followed each context."""
    grams = Counter(tuple(text[i : i + n]) for n in range(2, longest + 1) for i in range(len(text) - n + 1))
    table: dict[tuple[int, ...], dict[int, int]] = {}
    for gram, count in grams.items():
        table.setdefault(gram[:-1], {})[gram[-1]] = count
    return table


def test_a_draft_by_hand() -> None:
    """1 2 3 1 2 4 1 2 4 9 1 2: (1 2) was followed by 4 twice and by 3 once.

    Then (1 2 4) was followed by 1 and by 9 once each, 9 counted last; 9 is followed by 1, then (4 9 1) by 2.
    """
    text = [1, 2, 3, 1, 2, 4, 1, 2, 4, 9, 1, 2]
    drafter = build("drafter", "anpd", dict(ngram=4, max_draft_tokens=4))
    drafter.begin(context(text))
    draft = drafter.propose(context(text))
    assert draft.tokens == [4, 9, 1, 2] and draft.is_chain and draft.kind == "onehot"
    # the text ends with 9 1 2, which was never followed by anything: only 1 2, of order 3, gives the first token
    assert draft.notes == {"orders": [3, 4, 4, 4], "counts": [2, 1, 1, 1]}


@pytest.mark.parametrize("ngram", [2, 3, 5])
def test_tables_kept_up_equal_tables_made_anew_and_the_longest_known_context_wins(ngram: int) -> None:
    chance, drafted, shorter = random.Random(ngram), 0, 0
    for _ in range(30):
        text = [chance.randrange(4)]
        drafter = build("drafter", "anpd", dict(ngram=ngram, max_draft_tokens=5))
        drafter.begin(context(text))
        while len(text) < 40:
            draft = drafter.propose(context(text, room := chance.randrange(1, 9)))
            table = counted(text, ngram)
            assert drafter._counts.counts == table
            path = list(text)
            for i, token in enumerate(draft.tokens):
                order = next(
                    n for n in range(min(ngram, len(path) + 1), 1, -1) if tuple(path[-(n - 1) :]) in table
                )
                row = table[tuple(path[-(order - 1) :])]
                assert draft.notes["orders"][i] == order and draft.notes["counts"][i] == row[token] == max(
                    row.values()
                )
                path.append(token)
                shorter += order < min(ngram, len(path))
            assert len(draft) == min(5, room) or (path[-1],) not in table, (
                "it ends early only where nothing is known"
            )
            drafted += len(draft)
            text += [chance.randrange(4) for _ in range(chance.randrange(1, 4))]
    assert drafted > 500 and (shorter > 100 or ngram == 2)


def test_of_equally_frequent_followers_the_one_counted_last_is_taken() -> None:
    counts = NgramCounts(2)
    text = [1, 2, 1, 3]
    counts.extend(text)
    assert counts.top_follower([1]) == (3, 1, 2)
    counts.extend([*text, 1, 2])
    assert counts.top_follower([7, 1]) == (2, 2, 2) and counts.top_follower([7]) is None


def test_guesses_are_never_counted() -> None:
    """After a run with refused drafts the tables are those of prompt and text, up to the last proposal."""
    session = toys.decode(toys.method(drafter=("anpd", {"max_draft_tokens": 4, "ngram": 3})), count=60)
    steps = session.sink.steps
    assert sum(step.drafted - step.accepted for step in steps) > 20, "the test needs guesses that were wrong"
    read = len(session.tokens) - len(steps[-1].emitted)
    assert session.drafter._counts.counts == counted(session.tokens[:read], 3)
