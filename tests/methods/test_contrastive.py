"""Contrastive decoding: at its limits it is the target's own text, and the record adds up."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import Trace, check


def contrastive(
    drafter: str | tuple = "none", sampler: str = "greedy", count: int = 24, **knobs: float
) -> Session:
    return toys.decode(
        toys.method(guidance=("contrastive", knobs), drafter=drafter, sampler=sampler), count=count
    )


@pytest.mark.parametrize("knobs", [dict(alpha=1.0), dict(strength=0.0)])
def test_with_one_plausible_token_or_without_the_amateur_greedy_text_is_the_targets(knobs: dict) -> None:
    plain = toys.greedy_text(toys.pair()[0].decoder, toys.PROMPT, 24)
    assert contrastive(**knobs).end.tokens == plain != contrastive().end.tokens
    assert contrastive(("draft_model", {"max_draft_tokens": 3, "width": 2}), **knobs).end.tokens == plain


@torch.inference_mode()
def test_each_token_has_the_largest_difference_among_the_plausible() -> None:
    """Computed by reading the whole text with both models at once, without a cache."""
    run = contrastive(
        ("draft_model", {"max_draft_tokens": 3, "width": 2}), alpha=0.05, strength=0.8, temperature=0.7
    )
    feed = Feed.causal_chain(run.tokens, 0)
    p, q = (
        x.decoder.forward(feed, None)[0, len(toys.PROMPT) - 1 : -1]
        for x in (toys.pair()[0], toys.helper_models()["amateur"])
    )
    p, q = p.log_softmax(-1), (q / 0.7).log_softmax(-1)
    plausible = p.exp() >= 0.05 * p.exp().amax(-1, keepdim=True)
    score = torch.where(plausible, p - 0.8 * q, -torch.inf)
    assert score.argmax(-1).tolist() == run.end.tokens
    assert (score.argmax(-1) != p.argmax(-1)).sum() > 4 and int(plausible.sum(-1).max()) > 1, (
        "the test needs another choice"
    )
    choices = [x for step in run.sink.steps for x in step.choices]
    for choice, row in zip(choices, score, strict=True):
        kept = [x for x in choice.candidates if row[x] > -torch.inf]
        assert [x for x in choice.scores if x is not None] == pytest.approx(row[kept].tolist(), abs=1e-9)


def test_an_amateur_that_is_the_target_leaves_no_difference() -> None:
    target, _ = toys.pair()
    method = toys.method(guidance=("contrastive", dict(alpha=0.01, temperature=1.0)))
    models = {"amateur": target}
    run = toys.finish_session(Session(target, method, toys.PROMPT, models=models, max_new_tokens=12))
    scores = [x for step in run.sink.steps for choice in step.choices for x in choice.scores if x is not None]
    assert len(scores) > 12 and max(map(abs, scores)) < 1e-9


def test_a_prompt_of_one_token_is_read_by_both() -> None:
    runs = [
        toys.decode(toys.method(guidance="contrastive", drafter=x), [5], 10)
        for x in ("none", "token_recycling")
    ]
    assert runs[0].end.tokens == runs[1].end.tokens and all(check(x.sink).ok for x in runs)


def test_without_an_amateur_it_says_how_to_give_one() -> None:
    said = r"^contrastive needs a model in the role 'amateur': give --role amateur=NAME .*e\.g\. the shipped lab-draft\.$"
    with pytest.raises(MethodError, match=said):
        Session(toys.pair()[0], Method.of("contrastive"), toys.PROMPT)


def test_a_strategy_that_has_no_law_refuses_it() -> None:
    with pytest.raises(
        MethodError,
        match=r"^jacobi uses no guidance, so contrastive would be ignored; leave the guidance out",
    ):
        toys.decode(toys.method(strategy="jacobi", guidance="contrastive"))


FORGED = {
    "a term": (
        lambda x: replace(x, terms={**x.terms, "log q": [y + 1 for y in x.terms["log q"]]}),
        "its terms add up to",
    ),
    "the token": (lambda x: replace(x, candidates=x.candidates[::-1]), "it chose the token"),
    "a floor": (lambda x: replace(x, floors={"log p": 1.0}), "by its terms and floors it should not"),
    "all scores": (
        lambda x: replace(
            x,
            weights={"log p": 1.0, "log q": -0.25},
            scores=[
                None if s is None else s + 0.75 * q for s, q in zip(x.scores, x.terms["log q"], strict=True)
            ],
        ),
        "is another than the softmax of the scores",
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_record_is_found_out(what: str) -> None:
    forge, why = FORGED[what]
    run = contrastive(alpha=0.01)
    step = next(
        i for i, x in enumerate(run.sink.steps) if sum(s is not None for s in x.choices[0].scores) > 2
    )
    trace = Trace()
    for record in [run.sink.header, run.sink.prefill, *run.sink.steps]:
        forged = record is run.sink.steps[step]
        trace.write(replace(record, choices=[forge(record.choices[0])]) if forged else record)
    trace.seal(run.end)
    assert why in str(check(trace))
