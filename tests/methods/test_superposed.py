"""Superposed decoding: the input is the weighted mean of the drafts' embeddings; counted n-grams separate the drafts."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import toys
from followed import endings, followed

from decodescope.engine import MethodError
from decodescope.engine.methods.drafters.shared.followers import follower_shares
from decodescope.engine.methods.drafters.shared.suffix_array import SuffixArray
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check

SMALL = toys.model(toys.decoder(toys.toy_spec(vocab=8), 6, torch.float64, sharp=2.0))
PROMPT = [1, 3, 2]
CORPUS = [1, 2, 3, 5, 1, 2, 4, 3, 2, 5, 6, 7, 1, 2, 3, 0, 4, 4, 1, 6, 2, 3, 5, 7]
WEIGHTS = (0.2, 0.3, 0.5)


def superposed(count: int = 8, corpus: Path | None = None, **knobs):
    named = {} if corpus is None else {"datastore": str(corpus)}
    return toys.decode(
        toys.method(strategy=("superposed", {**knobs, **named})), PROMPT, count, pair=(SMALL, SMALL)
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "ids.txt"
    file.write_text(" ".join(map(str, CORPUS)))
    return file


def share(context: list[int], token: int) -> float | None:
    """P(token | context) by looking at every place of the corpus."""
    n = len(context)
    behind = [CORPUS[i + n] for i in range(len(CORPUS) - n) if CORPUS[i : i + n] == context]
    return behind.count(token) / len(behind) if behind else None


@torch.inference_mode()
def by_hand(count: int, k: int, alpha: float, temperature: float, n: int, penalty: float):
    """The drafts after each step, (text, score) best first: no cache, each pass reads all mixtures from the beginning."""
    decoder, rows = SMALL.decoder, [SMALL.decoder.embed[x] for x in PROMPT]
    drafts, steps = [([], 0.0)], []
    for _ in range(count):
        feed = Feed.causal_chain([0] * len(rows), 0)
        feed.embeds, feed.embed_rows = torch.stack(rows)[None], torch.ones(len(rows), dtype=torch.bool)
        top = (decoder.forward(feed, None)[0, -1] / temperature).softmax(0).topk(n)
        p = (top.values / top.values.sum()).tolist()
        every = []
        for text, score in drafts:
            q = [
                sum(w * (share(([*PROMPT, *text])[-i:], v) or 0) for i, w in enumerate(WEIGHTS, 1))
                for v in top.indices.tolist()
            ]
            for v, p_v, q_v in zip(top.indices.tolist(), p, q, strict=True):
                if any(q) and not q_v and alpha:
                    continue
                mixed = (1 - alpha) * math.log(p_v) + (
                    alpha * math.log(q_v) if q_v else -penalty if alpha else 0.0
                )
                every.append(([*text, v], score + mixed))
        drafts = sorted(every, key=lambda x: -x[1])[:k]
        steps.append(drafts)
        odds = torch.tensor([score for _, score in drafts], dtype=torch.float64).softmax(0)
        rows.append(sum(w * decoder.embed[text[-1]] for w, (text, _) in zip(odds, drafts, strict=True)))
    return steps


@pytest.mark.parametrize(
    ("k", "alpha", "temperature"),
    [(1, 0.5, 1.0), (2, 0.0, 1.0), (3, 0.54, 0.5), (4, 0.2, 0.06), (3, 1.0, 1.0)],
)
def test_drafts_and_scores_are_those_by_hand(corpus: Path, k: int, alpha: float, temperature: float) -> None:
    session = superposed(
        corpus=corpus,
        drafts=k,
        alpha=alpha,
        temperature=temperature,
        candidates=8,
        ngram_weights=WEIGHTS,
        unknown_penalty=50.0,
    )
    texts: list[list[int]] = [[]]
    for step, due in zip(session.sink.steps, by_hand(8, k, alpha, temperature, 8, 50.0), strict=True):
        b = followed(step)
        texts = [[*texts[parent], token] for parent, token in zip(b.parents, b.tokens, strict=True)]
        assert texts == [text for text, _ in due]
        assert b.scores == pytest.approx([score for _, score in due], abs=1e-9)
    assert session.end.tokens == texts[0] and check(session.sink).ok
    mixed = [
        len({text[-1] for text, _ in due}) > 1 for due in by_hand(8, k, alpha, temperature, 8, 50.0)[:-1]
    ]
    assert k == 1 or any(mixed), "the test needs rows that mix several tokens"


def test_one_draft_without_ngrams_is_greedy() -> None:
    assert superposed(20, drafts=1, alpha=0.0).end.tokens == toys.greedy_text(SMALL.decoder, PROMPT, 20)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_passes_are_as_many_as_tokens_of_one_row_each_whatever_k_is(k: int) -> None:
    session = superposed(12, drafts=k, alpha=0.0, temperature=1.0)
    passes = [one for step in session.sink.steps for one in step.passes]
    assert [(x.lane, x.tokens, x.batch) for x in passes] == [("target", 1, 1)] * 12
    assert session.target.cache.length == len(PROMPT) - 1 + 12


def test_a_text_ends_only_where_it_is_among_the_best(corpus: Path) -> None:
    """With one draft the text ends where greedy decoding ends."""
    plain = toys.greedy_text(SMALL.decoder, PROMPT, 20)
    for stop in set(plain):
        due = plain[: plain.index(stop) + 1]
        session = toys.decode(
            toys.method(strategy=("superposed", dict(drafts=1, alpha=0.0))),
            PROMPT,
            20,
            pair=(SMALL, SMALL),
            stop_tokens=[stop],
        )
        assert (session.end.tokens, session.end.reason) == (due, "stop_token")
    session = toys.decode(
        toys.method(strategy=("superposed", dict(datastore=str(corpus), temperature=1.0))),
        PROMPT,
        20,
        pair=(SMALL, SMALL),
        stop_tokens=[2, 3, 5],
    )
    found = endings(session.sink.steps)
    assert session.end.reason == "stop_token" and len(found) >= 3 and check(session.sink).ok
    assert session.end.tokens == max(found, key=lambda x: x[2] / len(x[1]))[1]


def test_candidates_tell_what_was_chosen_from(corpus: Path) -> None:
    """The best k of each step's rows were continued, with the probabilities that the rows record."""
    session = superposed(corpus=corpus, drafts=3, temperature=1.0, candidates=6)
    refused = 0
    for step in session.sink.steps:
        b = followed(step)
        columns = b.detail.columns
        rows = sorted(
            zip(columns["score"], b.detail.parents, columns["token"], strict=True), key=lambda x: -x[0]
        )
        assert rows[:3] == [*zip(b.scores, b.parents, b.tokens, strict=True)] and len(rows) >= 2
        own = dict(zip(columns["token"], columns["p"], strict=True))
        assert sum(own.values()) <= 1 + 1e-9
        refused += columns["outcome"].count("refused")
        odds = [math.exp(score) for score in b.scores]
        assert columns["share"][:3] == pytest.approx([x / sum(odds) for x in odds])
    assert refused, "the test needs candidates that do not go on"
    quiet = toys.decode(toys.method(strategy="superposed"), PROMPT, 4, pair=(SMALL, SMALL), level="summary")
    for step in quiet.sink.steps:
        assert {*step.details[0].columns} == {"token", "score", "outcome"} and len(step.details[0]) == 3


MIXED = {
    "a share": (lambda x: {**x, "share": [0.5, *x["share"][1:]]}, "and the scores give"),
    "a better one": (lambda x: {**x, "score": [*x["score"][:-1], 0.0]}, "and left one of 0"),
    "no scores": (lambda x: {**x, "score": [None] * len(x["score"])}, "without a score"),
}


@pytest.mark.parametrize("what", MIXED)
def test_a_forged_mixture_is_found_out(what: str, corpus: Path) -> None:
    forge, why = MIXED[what]
    trace = copy.deepcopy(superposed(corpus=corpus, drafts=3, temperature=1.0, candidates=6).sink)
    assert check(trace).ok
    trace.steps[3].details[0].columns = forge(trace.steps[3].details[0].columns)
    assert any(why in one for one in check(trace).problems), check(trace)


def test_shares_count_the_places_that_a_token_follows() -> None:
    store = SuffixArray([1, 2, 3, -1, 1, 2, 4, -1, 1, 2, -1, 5])
    assert follower_shares(store, [1, 2], np.array([3, 4, 5])).tolist() == [0.5, 0.5, 0.0], (
        "a document's end is no follower"
    )
    assert (
        follower_shares(store, [3], np.array([1])) is None
        and follower_shares(store, [7], np.array([1])) is None
    )


def test_more_drafts_than_the_vocabulary_can_part_are_refused() -> None:
    with pytest.raises(MethodError, match=r"superposed.drafts = 5: a vocabulary of 8 has room for 4"):
        superposed(drafts=5)
