"""Contrastive search: it chooses as a computation without a cache does, in one pass per token; its limits are greedy text."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys
from torch.nn.functional import cosine_similarity

from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.checks.notes import declared_notes
from decodescope.lab.decision.explain import explain
from decodescope.lab.wire.messages import build_wire

TARGET = toys.pair()[0]


def search(
    prompt: list[int] = toys.PROMPT, count: int = 24, policy: str | tuple = "keep_all", **knobs: float
):
    return toys.decode(toys.method(strategy=("contrastive_search", knobs), policy=policy), prompt, count)


@torch.inference_mode()
def whole(text: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits after the text [V] and the states of its tokens [n, d_model], by one pass without a cache."""
    probe = Probe(Needs(hidden=frozenset({"final"})))
    logits = TARGET.decoder.forward(Feed.causal_chain(text, 0), None, probe)[0, -1]
    return logits, probe.hidden["final"][0]


def scored(text: list[int], k: int, alpha: float) -> dict[int, tuple[float, int]]:
    """For the k likeliest tokens after `text`: the score and the most similar place, each computed without a cache."""
    logits, states = whole(text)
    p = logits.softmax(-1)
    made = {}
    for token in p.topk(k).indices.tolist():
        like = cosine_similarity(whole([*text, token])[1][-1:], states)
        made[token] = (float((1 - alpha) * p[token] - alpha * like.max()), int(like.argmax()))
    return made


@pytest.mark.parametrize(("k", "alpha"), [(4, 0.6), (3, 1.0), (40, 0.8)])
def test_each_token_and_score_are_those_of_reading_everything_anew(k: int, alpha: float) -> None:
    run, text, other = search(top_k=k, alpha=alpha), [*toys.PROMPT], 0
    for step in run.sink.steps:
        due = scored(text, min(k, 13), alpha)
        best = max(due, key=lambda x: due[x][0])
        (choice,), notes = step.choices, declared_notes(run.sink.header, step)["strategy"]
        assert step.emitted == [best] and choice.candidates[choice.chosen] == best
        assert dict(zip(choice.candidates, choice.scores, strict=True)) == pytest.approx(
            {x: s for x, (s, _) in due.items()}
        )
        assert notes["nearest"] == [[x, due[x][1]] for x in choice.candidates]
        assert len(notes["cosines"]) == len(text) and max(notes["cosines"]) == round(
            choice.terms["max cos"][0], 3
        )
        assert all(-alpha <= x <= 1 for x in choice.scores)
        other += best != next(iter(due))
        text += step.emitted
    assert run.tokens == text and check(run.sink).ok and check(run.sink).counts["choices"] == 24
    assert other > 2, "the test needs tokens that are not the likeliest"


@pytest.mark.parametrize("knobs", [dict(top_k=1), dict(alpha=0.0)])
@pytest.mark.parametrize(
    "policy", ["keep_all", ("window", dict(window=8)), ("h2o", dict(heavy=4, recent=4))], ids=str
)
def test_with_one_candidate_or_without_the_penalty_it_is_greedy(knobs: dict, policy: str | tuple) -> None:
    """Also under policies that evict: a row is read after the entries that they left of the text before it."""
    greedy = toys.decode(toys.method(policy=policy), count=24)
    run = search(policy=policy, **knobs)
    assert run.tokens == greedy.tokens != search(policy=policy).tokens
    assert [x.cache[0].held for x in run.sink.steps] == [x.cache[0].held for x in greedy.sink.steps]


@pytest.mark.parametrize("prompt", [toys.PROMPT, [4]], ids=["several", "one token"])
def test_a_token_takes_one_pass_of_its_candidates(prompt: list[int]) -> None:
    run = search(prompt, top_k=4)
    rows = [[(x.tokens, x.held) for x in step.passes] for step in run.sink.steps]
    n = len(prompt)
    assert rows == [[(1, n - 1), (4, n)], *([(4, n + i)] for i in range(1, 24))]
    assert all(x.cache[0].appended == 1 for x in run.sink.steps) and toys.matches_fresh_reading(run.target)


def test_a_branch_and_a_fork_go_on_as_the_text_would() -> None:
    run, made = search(), toys.method(strategy="contrastive_search")
    session = toys.Session(TARGET, made, toys.PROMPT, max_new_tokens=24)
    for _ in range(7):
        session.step()
    twin = session.branch()
    assert (
        toys.finish_session(twin).tokens == run.tokens == toys.finish_session(session).tokens
        and check(twin.sink).ok
    )
    plain = toys.decode(count=24)
    turned = Fork(TARGET, plain.header, list(plain.sink.steps), 6, models=toys.helper_models(), method=made)
    due = search(plain.tokens[: len(toys.PROMPT) + 6], 18)
    assert toys.finish_session(turned).tokens == due.tokens != plain.tokens and check(turned.sink).ok


def test_a_worse_candidate_taken_or_a_score_that_does_not_add_up_is_found_out() -> None:
    run = search()
    for forge, why in (
        (lambda x: replace(x, chosen=1), "a candidate with a larger score was left behind"),
        (lambda x: replace(x, terms={**x.terms, "p": x.terms["p"][::-1]}), "its terms add up to"),
    ):
        trace = Trace()
        for record in [run.sink.header, run.sink.prefill, *run.sink.steps]:
            if record is run.sink.steps[5]:
                forged = forge(record.choices[0])
                token = forged.candidates[forged.chosen]
                record = replace(record, emitted=[token], choices=[forged])
            trace.write(record)
        trace.seal(run.end)
        assert why in str(check(trace))


def test_a_card_and_an_explanation_add_the_score_up() -> None:
    trace = search().sink
    card = build_wire(trace).step(trace.steps[3], whole=True)["tally"]
    assert card["says"] == "0.4 p - 0.6 max cos" and len(card["rows"]) == 5 and "turn" not in card
    assert explain(trace, 3).agrees and "the best is taken" in str(explain(trace, 3))
