"""Entropy Adaptive Decoding: one model or the other exactly at its ends, turns of a minimum length, caches that catch up."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.trace import check
from decodescope.engine.trace.details.looked import Look

KNOBS = dict(tau=1.0, window=3, stay=2)


def switch(
    prompt: list[int] = toys.PROMPT, count: int = 40, sampler: str = "greedy", **knobs: object
) -> Session:
    method = toys.method(strategy="switch", router=("entropy", {**KNOBS, **knobs}), sampler=sampler)
    return toys.decode(method, prompt, count, seed=5)


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_ends_of_tau_are_the_small_and_the_large_model_alone(sampler: str) -> None:
    big, small = toys.pair()
    for prompt in [[4], toys.PROMPT, *toys.prompts(3, seed=5)]:
        for model, knobs in ((small, dict(tau=64.0, start="small")), (big, dict(tau=-1.0, start="large"))):
            own = toys.finished(
                Session(model, toys.method(sampler=sampler), prompt, max_new_tokens=40, seed=5)
            )
            other = switch(prompt, sampler=sampler, **knobs)
            assert other.end.tokens == own.end.tokens
            passes = [x.lane for step in other.sink.steps for x in step.passes] + [
                x.lane for x in other.prefilled.passes
            ]
            assert set(passes) == {"draft" if model is small else "target"}, (
                "who is not asked reads nothing, no prompt either"
            )


def test_turns_last_their_minimum_and_a_cache_that_caught_up_is_one_that_read_everything() -> None:
    changes = caught = 0
    for prompt in [toys.PROMPT, *toys.prompts(4, seed=3)]:
        for stay in (1, 3, 5):
            session = switch(prompt, stay=stay, tau=1.1)
            wrote = [step.switch.wrote for step in session.sink.steps]
            assert wrote[0] == "large" and check(session.sink).ok
            runs = [0]
            for a, b in pairwise(wrote):
                runs[-1] += 1
                runs += [0] if a != b else []
            assert all(run >= stay for run in runs[:-1])
            changes += len(runs) - 1
            caught += sum(step.switch.caught for step in session.sink.steps)
            for lane in (session.target, session.lanes["draft"]):
                assert lane.tokens == session.tokens[: len(lane.tokens)] and toys.same_as_fresh(lane)
    assert changes > 40 and caught > 100, "the test needs changes"


def test_score_is_the_writers_entropy_in_bits_and_its_token_the_writers_own() -> None:
    big, small = toys.pair()
    session = switch(window=4, stay=1)
    scores: list[float] = []
    for step in session.sink.steps:
        model = big if step.switch.wrote == "large" else small
        with torch.inference_mode():
            law = model.decoder.forward(toys.Feed.causal(session.tokens[: step.n], 0), None)[0, -1].softmax(
                -1
            )
        scores.append(float(-(law * law.log2()).sum()))
        assert step.switch.score == pytest.approx(scores[-1], abs=1e-9)
        assert step.switch.mean == pytest.approx(sum(scores[-4:]) / len(scores[-4:]), abs=1e-9)
        assert step.emitted == [int(law.argmax())]
    assert {step.switch.wrote for step in session.sink.steps} == {"small", "large"}


def test_check_finds_a_turn_a_mean_or_a_count_of_rows_that_does_not_follow() -> None:
    session = switch()
    steps = [step for step in session.sink.steps if step.switch.caught > 1]
    assert steps and check(session.sink).ok
    for step in steps[:1]:
        for name, wrong, word in (
            *(("mean", 40.0, "its mean is"), ("next", None, "goes on"), ("tau", 0.1, "it held its mean")),
            *(("caught", 1, "caught up"), ("stay", 9, "tokens in a row")),
            ("looks", [Look("law", "draft", 1)], "looked at"),
        ):
            kept = getattr(step.switch, name)
            value = ("small" if kept == "large" else "large") if wrong is None else wrong
            setattr(step.switch, name, value)
            report = check(session.sink)
            assert any(word in problem for problem in report.problems), name
            setattr(step.switch, name, kept)
    assert check(session.sink).ok


def test_router_of_answers_keeps_up_to_tau_bits_and_the_kept_share_rises_with_tau() -> None:
    big, small = toys.pair()
    prompts, shares = [toys.PROMPT, *toys.prompts(6, seed=9)], []
    for tau in (-1.0, 0.9, 1.05, 1.3, 64.0):
        kept = 0
        for prompt in prompts:
            session = toys.decode(
                toys.method(strategy="cascade", router=("entropy", dict(tau=tau))), prompt, 24
            )
            found = session.sink.steps[0].candidates
            assert check(session.sink).ok and found.kept == (found.score <= tau)
            model = small if found.kept else big
            assert session.end.tokens == toys.greedy(model.decoder, prompt, 24)
            lanes = [x.lane for step in session.sink.steps for x in step.passes]
            assert ("target" in lanes) != found.kept and (found.kept or toys.same_as_fresh(session.target))
            kept += found.kept
        shares.append(kept)
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == len(prompts) and len(set(shares)) > 2


def test_check_finds_an_answer_that_was_kept_against_its_score() -> None:
    session = toys.decode(toys.method(strategy="cascade", router=("entropy", dict(tau=64.0))))
    found = session.sink.steps[0].candidates
    for name, wrong, word in (
        *(
            ("kept", False, "was not kept"),
            ("score", 65.0, "was kept"),
            ("tau", 2.0, "held against"),
            ("rows", 1, "rows"),
        ),
    ):
        value = getattr(found, name)
        setattr(found, name, wrong)
        assert any(word in problem for problem in check(session.sink).problems), name
        setattr(found, name, value)
    found.answers[0].bits[0] += math.pi
    assert any("its answers give" in problem for problem in check(session.sink).problems)


def test_answer_that_is_kept_tells_the_state_of_a_sampler_that_remembers() -> None:
    sampler = ("repetition_penalty", dict(penalty=1.3))
    session = toys.decode(
        toys.method(strategy="cascade", router=("entropy", dict(tau=64.0)), sampler=sampler)
    )
    assert session.sink.steps[0].candidates.kept and check(session.sink).ok and session.sink.steps[0].sampler


def test_router_of_another_sort_is_refused_with_a_way_out() -> None:
    with pytest.raises(MethodError, match=r"^draft_verify uses no router, so entropy would be ignored; "):
        toys.decode(toys.method(router=("entropy", dict(tau=2.0))))
