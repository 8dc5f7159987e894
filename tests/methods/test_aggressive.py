"""Aggressive decoding: the answer is drafted from the input until it departs, and again once its end is unique in the input."""

from __future__ import annotations

import math
import random

import pytest
import torch
import toys

from decodescope.engine import Session
from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import Draft
from decodescope.testing import tables


def context(text: list[int], prompt: int, room: int = 99) -> Context:
    return Context(text, None, {}, None, None, None, room, prompt)  # type: ignore[arg-type] # only the text is used


def drafts(prompt: list[int], answer: list[int], **knobs: int) -> list[Draft]:
    """The drafts before each token of the answer and after the last one, if it were written token by token."""
    drafter = build("drafter", "aggressive", knobs)
    drafter.begin(context(prompt, len(prompt)))
    return [drafter.propose(context([*prompt, *answer[:i]], len(prompt))) for i in range(len(answer) + 1)]


def test_an_answer_by_hand() -> None:
    """Input 1 2 3 4 2 5 6, answer 1 2 9 2 5. 9 departs; 2 occurs at two places, 5 at one, and drafting resumes after 5."""
    made = drafts([1, 2, 3, 4, 2, 5, 6], [1, 2, 9, 2, 5])
    assert [x.tokens for x in made] == [
        [1, 2, 3, 4, 2, 5, 6],
        [2, 3, 4, 2, 5, 6],
        [3, 4, 2, 5, 6],
        [],
        [],
        [6],
    ]
    for k, cursor, suffix in ((0, 0, 0), (5, 6, 1)):
        copied = [*range(cursor, cursor + len(made[k].tokens))]
        assert made[k].notes == {"mode": "copy", "cursor": cursor, "suffix": suffix, "copied": copied}


def test_a_longer_end_decides_where_a_shorter_one_stands_twice() -> None:
    made = drafts([1, 2, 3, 4, 2, 5, 2, 6], [4, 2])
    assert [x.tokens for x in made[1:]] == [[2, 5, 2, 6], [5, 2, 6]], (
        "a token that is left out is passed over"
    )
    assert drafts([1, 2, 3, 4, 2, 5], [9, 4, 2])[-1].tokens == [5]
    made = drafts([1, 2, 1, 3, 2, 3, 7], [9, 2, 3])  # 2 occurs twice there, 2 3 once
    assert [x.tokens for x in made[1:]] == [[], [], [7]] and made[-1].notes["suffix"] == 2


def test_input_is_the_prompt_without_what_stands_around_it() -> None:
    made = drafts([8, 8, 1, 2, 3, 9], [1], tokens_before_input=2, tokens_after_input=1, max_draft_tokens=2)
    assert [x.tokens for x in made] == [[1, 2], [2, 3]] and made[1].notes["cursor"] == 3
    assert all(not x.tokens for x in drafts([1, 2, 3], [1, 2], tokens_before_input=2, tokens_after_input=2))


def test_cursor_stands_where_a_plain_search_puts_it() -> None:
    chance, searched = random.Random(5), 0
    for _ in range(60):
        prompt, answer = ([chance.randrange(5) for _ in range(n)] for n in (16, 24))
        made, cursor = drafts(prompt, answer, ngram=6), 0
        for i, token in enumerate(answer):
            if cursor is not None and prompt[cursor : cursor + 1] == [token]:
                cursor += 1
            else:
                cursor = None
                for j in range(1, min(6, i + 1) + 1):
                    ends = [
                        at + j for at in range(17 - j) if prompt[at : at + j] == answer[i + 1 - j : i + 1]
                    ]
                    if len(ends) == 1:
                        cursor, searched = ends[0], searched + 1
                        break
            assert made[i + 1].tokens == ([] if cursor is None else prompt[cursor:])
    assert searched > 100


@pytest.mark.parametrize("length", [1, 4, 28])
def test_an_answer_that_is_the_input_takes_a_pass_per_block(length: int) -> None:
    """28 different tokens, written a second time: length + 1 tokens per pass; all in one pass if the draft is unbounded."""
    script = [*range(28), *range(28)]
    target = tables.table_model(lambda seen: torch.eye(28, dtype=torch.float64)[script[len(seen)]] * 9, 28)
    session = Session(
        target,
        toys.method(drafter=("aggressive", {"max_draft_tokens": length})),
        script[:28],
        max_new_tokens=28,
    )
    assert len(list(session.stream())) == math.ceil(28 / (length + 1))
    assert session.end.tokens == script[28:]
