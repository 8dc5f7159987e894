"""Beam search: width one is greedy, a wide enough beam finds the best of all texts, caches follow the hypotheses."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import toys
from followed import endings, followed

from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check

SMALL = toys.model(toys.decoder(toys.toy_spec(vocab=4), 6, torch.float64, sharp=2.0))
PROMPT = [1, 3, 2]


def beam(width: int, alpha: float = 0.0, count: int = 4, prompt: list[int] = PROMPT, **more):
    return toys.decode(
        toys.method(strategy=("beam", {"width": width, "alpha": alpha})),
        prompt,
        count,
        pair=(SMALL, SMALL),
        **more,
    )


@torch.inference_mode()
def score(text: list[int], prompt: list[int] = PROMPT) -> float:
    """Sum of the log-probabilities of `text` after the prompt, teacher-forced in one pass without a cache."""
    logits = SMALL.decoder.forward(Feed.causal_chain([*prompt, *text], 0), None)[0, len(prompt) - 1 : -1]
    return float(logits.log_softmax(-1)[range(len(text)), text].sum())


def best(count: int, alpha: float, stop: int | None, prompt: list[int] = PROMPT) -> list[int]:
    """By brute force, the best of all texts that end with the stop token or at the limit."""
    texts = set()
    for full in product(range(4), repeat=count):
        texts.add(full[: full.index(stop) + 1] if stop in full else full)
    return list(max(texts, key=lambda t: score(list(t), prompt) / len(t) ** alpha))


def test_width_one_is_greedy() -> None:
    assert beam(1, count=12).end.tokens == toys.greedy_text(SMALL.decoder, PROMPT, 12)


def test_wide_beam_finds_the_most_likely_text() -> None:
    """width >= V^(L - 1) keeps every prefix."""
    other = 0
    for prompt in toys.prompts(12, 4, vocab=4):
        session = beam(16, count=3, prompt=prompt)
        assert session.end.tokens == best(3, 0.0, None, prompt)
        other += session.end.tokens != toys.greedy_text(SMALL.decoder, prompt, 3)
    assert other, "the test needs texts that greedy misses"


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("stop", [0, 1, 2, 3])
def test_wide_beam_finds_the_best_ranked_text_that_ends(stop: int, alpha: float) -> None:
    session = beam(32, alpha, count=3, stop_tokens=[stop])
    due = best(3, alpha, stop)
    assert session.end.tokens == due
    assert session.end.reason == ("stop_token" if due[-1] == stop else "max_new_tokens")


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_search_goes_on_while_a_longer_text_may_still_win(alpha: float) -> None:
    """A longer hypothesis that ranks better beats a finished one: the search must not end before."""
    for stop in range(4):
        session = beam(2, alpha, count=8, stop_tokens=[stop])
        found = endings(session.sink.steps)
        ranks = [score / len(tokens) ** alpha for _, tokens, score in found]
        emitted = session.end.tokens
        assert score(emitted) / len(emitted) ** alpha >= max(ranks, default=-torch.inf) - 1e-9
        if len(session.sink.steps) < 8:
            alive = max(followed(session.sink.steps[-1]).scores)
            assert alive / 8**alpha <= sorted(ranks)[-2] + 1e-9


def test_scores_are_teacher_forced_log_probabilities_and_caches_follow_the_parents() -> None:
    session = beam(5, count=10)
    texts: list[list[int]] = [[]]
    for step in session.sink.steps:
        b = followed(step)
        texts = [[*texts[parent], token] for parent, token in zip(b.parents, b.tokens, strict=True)]
        assert b.scores == sorted(b.scores, reverse=True)
        assert all(abs(score(text) - s) < 1e-9 for text, s in zip(texts, b.scores, strict=True))
    assert session.end.tokens == texts[0] and check(session.sink).ok
    for i, text in enumerate(texts):  # row i of the cache is hypothesis i; its last token is not yet read
        alone = toys.decode(pair=(SMALL, SMALL), prompt=[*PROMPT, *text], count=1).target.cache
        for a, b in zip(session.target.cache.layers, alone.layers, strict=True):
            assert torch.allclose(a.k[i], b.k[0, :, : a.n], atol=1e-9)


@pytest.mark.parametrize("stops", [[1, 2], [0, 1, 2], [0, 2, 3]])
def test_enough_hypotheses_go_on_where_several_tokens_end_a_text(stops: list[int]) -> None:
    """With several stop ids all of the best 2 * width extensions may end: then the search looks at others."""
    crowded = 0
    for prompt in toys.prompts(12, 4, vocab=4):
        session, before = beam(2, count=6, prompt=prompt, stop_tokens=stops), 1
        for step in session.sink.steps:
            b = followed(step)
            assert len(b.tokens) == min(2, before * (4 - len(stops))) and not set(b.tokens) & set(stops)
            crowded += len(b.ended) > 2
            before = len(b.tokens)
        assert check(session.sink).ok
    assert crowded, "the test needs steps in which more end than go on"


def test_what_was_left_is_the_next_best() -> None:
    """All extensions, ranked: first those that are kept, then those that a record calls pruned."""
    texts: list[list[int]] = [[]]
    for step in beam(3, count=5).sink.steps:
        b = followed(step)
        every = sorted(
            ((score([*text, x]), i, x) for i, text in enumerate(texts) for x in range(4)), reverse=True
        )
        rows = [
            *zip(b.scores, b.parents, b.tokens, strict=True),
            *((z, i, x) for i, x, z in b.left),
        ]
        assert [row[1:] for row in rows] == [row[1:] for row in every[: len(rows)]] and len(rows) == min(
            6, len(every)
        )
        texts = [[*texts[parent], token] for parent, token in zip(b.parents, b.tokens, strict=True)]
    quiet = toys.decode(
        toys.method(strategy=("beam", {"width": 3})), PROMPT, 5, pair=(SMALL, SMALL), level="summary"
    )
    assert all({*followed(step).detail.columns["outcome"]} == {"kept"} for step in quiet.sink.steps)


def test_every_token_may_end_the_text() -> None:
    session = beam(3, stop_tokens=[0, 1, 2, 3])
    assert session.end.reason == "stop_token" and session.end.tokens == toys.greedy_text(
        SMALL.decoder, PROMPT, 1
    )
    assert check(session.sink).ok
