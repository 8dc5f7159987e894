"""RAPID: at m = 0 the target's own distribution, otherwise the paper's formula, with a second model on the retrieved text."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.drafters.shared.retrieval import bm25_scores, retrieve_positions
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import Trace, check

DRAFTER = ("draft_model", {"max_draft_tokens": 3, "width": 2})
KNOBS = dict(budget=8, window=3, question_tokens=3, strength=20.0)


def rapid(drafter: str | tuple = "none", sampler: str = "greedy", count: int = 24, **knobs: float) -> Session:
    return toys.decode(
        toys.method(guidance=("rapid", {**KNOBS, **knobs}), drafter=drafter, sampler=sampler), count=count
    )


def test_without_a_step_it_is_the_targets_own_law_to_the_bit() -> None:
    for sampler in ("greedy", "temperature"):
        run = rapid(DRAFTER, sampler, strength=0.0)
        assert (
            run.end.tokens == toys.decode(toys.method(drafter=DRAFTER, sampler=sampler), count=24).end.tokens
        )
        gaps = [step.law for step in run.sink.steps]
        assert (
            all(x == 0 for gap in gaps for x in gap["law_gap"])
            and min(x for gap in gaps for x in gap["second_gap"]) > 0
        )
    logits = torch.randn(1, 13, dtype=torch.float64)
    with torch.inference_mode():
        assert torch.equal(run.guidance.rows(logits, {}, Draft(), run.context), logits)
    assert rapid(DRAFTER).end.tokens != rapid(strength=0.0).end.tokens, "else there was nothing to see"


def test_where_the_prompt_is_as_short_as_the_budget_both_read_the_same() -> None:
    target = toys.pair()[0]
    for budget in (len(toys.PROMPT), 500):
        method = toys.method(guidance=("rapid", {**KNOBS, "budget": budget}), drafter=DRAFTER)
        models = {"short": target, "draft": toys.pair()[1]}
        run = toys.finish_session(Session(target, method, toys.PROMPT, models=models, max_new_tokens=20))
        assert (
            run.lanes["short"].tokens == run.target.tokens
            and run.end.tokens == toys.decode(count=20).end.tokens
        )
        assert (
            max(x for step in run.sink.steps for gaps in ("second_gap", "law_gap") for x in step.law[gaps])
            < 1e-12
        )
    long = toys.finish_session(
        Session(target, toys.method(guidance=("rapid", KNOBS)), toys.PROMPT, models=models, max_new_tokens=20)
    )
    assert (
        long.end.tokens != run.end.tokens and len(long.lanes["short"].tokens) == len(long.target.tokens) - 8
    )


@torch.inference_mode()
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_each_law_is_the_papers_formula_by_brute_force_whatever_drafts(alpha: float) -> None:
    """Both texts are read from scratch for every token; p, q and the shift in plain numbers."""
    second = toys.helper_models()["short"].decoder
    kept, n = retrieve_positions(toys.PROMPT, 8, 3, 3), len(toys.PROMPT)
    assert kept == [0, 1, 2, 3, 12, 13, 14], (
        "the first token, the window with 1 and 4, and the question 3 1 4"
    )
    for drafter in ("none", DRAFTER):
        run, moved, cut = rapid(drafter, alpha=alpha), 0, 0
        assert check(run.sink).ok
        for step in run.sink.steps:
            text = run.tokens[: step.n]
            z = toys.pair()[0].decoder.forward(Feed.causal_chain(text, 0, logits="last"), None)[0, 0]
            short = [text[x] for x in kept] + text[n:]
            q = second.forward(Feed.causal_chain(short, 0, logits="last"), None)[0, 0].softmax(-1).tolist()
            p = z.softmax(-1).tolist()
            law = [
                a - 20 * (b - c) if c >= alpha * max(q) else a
                for a, b, c in zip(z.tolist(), p, q, strict=True)
            ]
            cut += sum(c < alpha * max(q) for c in q)
            own = torch.tensor(law, dtype=torch.float64).softmax(-1).tolist()
            assert step.emitted[0] == law.index(max(law))
            choice = step.choices[0]
            level = [law[x] - score for x, score in zip(choice.candidates, choice.scores, strict=True)]
            assert max(level) - min(level) < 1e-9, "the scores are these logits, up to a number"
            for told, other in (("second_gap", q), ("law_gap", own)):
                assert step.law[told][0] == pytest.approx(
                    sum(abs(a - b) for a, b in zip(p, other, strict=True)) / 2
                )
            assert step.law["windows"][0] == 0 and set(step.law["windows"]) <= set(kept)
            moved += p.index(max(p)) != step.emitted[0]
        assert moved > 3 and bool(cut) is bool(alpha), "the test needs other choices than the target's"


def test_windows_that_hold_what_the_question_asks_are_kept_in_their_order() -> None:
    prompt = [1, *[7, 8, 9] * 10, 40, 41, 42, *[7, 8, 9] * 10, 50, 51, 52, *[7, 8, 9] * 10, 51, 41]
    kept = retrieve_positions(prompt, 9, 3, 2)
    assert [prompt[x] for x in kept] == [1, 40, 41, 42, 50, 51, 52, 51, 41] and kept == sorted(kept)
    assert retrieve_positions(prompt, 8, 3, 2)[1:4] in ([31, 32, 33], [64, 65, 66]), "there is room for one"
    assert retrieve_positions(prompt, len(prompt), 3, 2) == list(range(len(prompt)))
    for budget in range(3, len(prompt)):
        kept = retrieve_positions(prompt, budget, 3, 2)
        assert len(kept) <= budget and kept[0] == 0 and kept[-2:] == [len(prompt) - 2, len(prompt) - 1]
        assert budget - len(kept) < 3, "what is left is less than a window"


def test_relevance_is_bm25() -> None:
    windows, query = [[1, 2, 2, 3], [2, 4], [5, 5, 5, 5, 1, 6], [7]], [2, 5, 5, 9]
    mean, df = sum(map(len, windows)) / 4, Counter(x for window in windows for x in set(window))
    due = []
    for window in windows:
        score = 0.0
        for x in query:
            tf, idf = window.count(x), math.log(1 + (4 - df[x] + 0.5) / (df[x] + 0.5))
            score += idf * tf / (tf + 1.5 * (1 - 0.75 + 0.75 * len(window) / mean))
        due.append(score)
    assert bm25_scores(windows, query).tolist() == pytest.approx(due, rel=1e-5) and len(set(due)) > 3
    assert bm25_scores([], query).tolist() == []


def test_what_does_not_fit_is_refused_in_a_sentence() -> None:
    with pytest.raises(
        MethodError, match=r"^rapid.question_tokens = 8: must be below rapid.budget, which is 8\.$"
    ):
        rapid(question_tokens=8)
    said = r"^rapid needs a model in the role 'short': give --role short=NAME .*e\.g\. the shipped lab\.$"
    with pytest.raises(MethodError, match=said):
        Session(toys.pair()[0], toys.method(guidance="rapid"), toys.PROMPT)


def test_a_forged_shift_is_found_out() -> None:
    run = rapid(DRAFTER)
    step = next(i for i, x in enumerate(run.sink.steps) if x.law["law_gap"][0] > 0.1)
    trace = Trace()
    for record in [run.sink.header, run.sink.prefill, *run.sink.steps]:
        if record is run.sink.steps[step]:
            first, *others = record.choices
            plain = replace(first, weights={**first.weights, "(q - p)": 0.0}, scores=first.terms["log p"])
            record = replace(record, choices=[plain, *others])
        trace.write(record)
    trace.seal(run.end)
    assert not check(trace).ok
