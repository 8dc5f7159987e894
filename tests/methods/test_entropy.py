"""Entropy Adaptive Decoding: exactly one model at each extreme, turns of a minimum length, caches that catch up."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.trace import check
from decodescope.engine.trace.details.looks import Look

KNOBS = dict(tau=1.0, window=3, min_turn_tokens=2)


def turns(session: Session) -> list[dict[str, Any]]:
    """For each step the record of its turn: columns and values by name."""
    details = [step.detail("model_turn") for step in session.sink.steps]
    return [x.row(0) | x.values for x in details]


def switch(
    prompt: list[int] = toys.PROMPT, count: int = 40, sampler: str = "greedy", **knobs: object
) -> Session:
    method = toys.method(strategy="switch", router=("entropy", {**KNOBS, **knobs}), sampler=sampler)
    return toys.decode(method, prompt, count, seed=5)


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_ends_of_tau_are_the_small_and_the_large_model_alone(sampler: str) -> None:
    big, small = toys.pair()
    for prompt in [[4], toys.PROMPT, *toys.prompts(3, seed=5)]:
        for model, knobs in (
            (small, dict(tau=64.0, first_model="small")),
            (big, dict(tau=-1.0, first_model="large")),
        ):
            own = toys.finish_session(
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
            session = switch(prompt, min_turn_tokens=stay, tau=1.1)
            wrote = [x["lane"] for x in turns(session)]
            assert wrote[0] == "large" and check(session.sink).ok
            runs = [0]
            for a, b in pairwise(wrote):
                runs[-1] += 1
                runs += [0] if a != b else []
            assert all(run >= stay for run in runs[:-1])
            changes += len(runs) - 1
            caught += sum(x["caught"] for x in turns(session))
            for lane in (session.target, session.lanes["draft"]):
                assert lane.tokens == session.tokens[: len(lane.tokens)] and toys.matches_fresh_reading(lane)
    assert changes > 40 and caught > 100, "the test needs changes"


def test_score_is_the_writers_entropy_in_bits_and_its_token_the_writers_own() -> None:
    big, small = toys.pair()
    session = switch(window=4, min_turn_tokens=1)
    scores: list[float] = []
    for step, turn in zip(session.sink.steps, turns(session), strict=True):
        model = big if turn["lane"] == "large" else small
        with torch.inference_mode():
            law = model.decoder.forward(toys.Feed.causal_chain(session.tokens[: step.n], 0), None)[
                0, -1
            ].softmax(-1)
        scores.append(float(-(law * law.log2()).sum()))
        assert turn["bits"] == pytest.approx(scores[-1], abs=1e-9)
        assert turn["mean"] == pytest.approx(sum(scores[-4:]) / len(scores[-4:]), abs=1e-9)
        assert step.emitted == [int(law.argmax())]
    assert {x["lane"] for x in turns(session)} == {"small", "large"}


def test_check_finds_a_turn_a_mean_or_a_count_of_rows_that_does_not_follow() -> None:
    session = switch()
    step = next(x for x in session.sink.steps if x.detail("model_turn").values["caught"] > 1)
    assert check(session.sink).ok and check(session.sink).counts["turns of models"] == len(session.sink.steps)
    turn = step.detail("model_turn")
    row = turn.row(0)
    other = {"large": "small", "small": "large", "large stays": "small stays", "small stays": "large stays"}
    for change, word in (
        ({"mean": 40.0}, "its mean is"),
        ({"outcome": other[row["outcome"]]}, "goes on"),
        ({"outcome": "even"}, "goes on"),
        ({"bar": 0.1}, "it held its mean"),
        ({"caught": 1}, "caught up"),
        ({"turn": 9}, "tokens in a row"),
        ({"lane": "small" if row["lane"] == "large" else "large"}, "it was the turn of"),
        ({"token": (row["token"] + 1) % 16}, "the token of its turn"),
        ({"bits": None}, "lacks bits"),
        ({"lane": "middle"}, "without a lane"),
        ({"outcome": "neither"}, "without an outcome"),
    ):
        columns = {name: [change.get(name, x)] for name, x in row.items()}
        values = {name: change.get(name, x) for name, x in turn.values.items()}
        wrong = copy.deepcopy(session.sink)
        wrong.steps[step.step].details = [replace(turn, columns=columns, values=values)]
        assert any(word in problem for problem in check(wrong).problems), (change, check(wrong).problems)
    step.looks = [Look("law", "draft", 1)]
    assert any("looked at" in problem for problem in check(session.sink).problems)
    step.looks = [Look("entropy", "draft", -1)]
    assert any("a look at -1 rows" in problem for problem in check(session.sink).problems)


def test_a_mean_at_the_bar_is_the_small_models_turn_and_agrees() -> None:
    mean = turns(switch(window=1, min_turn_tokens=1, tau=1.0))[0]["mean"]
    session = switch(window=1, min_turn_tokens=1, tau=mean)
    even = [x for x in turns(session) if x["mean"] == mean]
    assert {x["outcome"] for x in even} == {"even"} and check(session.sink).ok


def test_router_of_answers_keeps_up_to_tau_bits_and_the_kept_share_rises_with_tau() -> None:
    big, small = toys.pair()
    prompts, shares = [toys.PROMPT, *toys.prompts(6, seed=9)], []
    for tau in (-1.0, 0.9, 1.05, 1.3, 64.0):
        kept = 0
        for prompt in prompts:
            session = toys.decode(
                toys.method(strategy="cascade", router=("entropy", dict(tau=tau))), prompt, 24
            )
            found = session.sink.steps[0].detail("answer_entropy").values
            assert check(session.sink).ok and found["kept"] == (found["score"] <= tau)
            model = small if found["kept"] else big
            assert session.end.tokens == toys.greedy_text(model.decoder, prompt, 24)
            lanes = [x.lane for step in session.sink.steps for x in step.passes]
            assert ("target" in lanes) != found["kept"]
            assert found["kept"] or toys.matches_fresh_reading(session.target)
            kept += found["kept"]
        shares.append(kept)
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == len(prompts) and len(set(shares)) > 2


def test_check_finds_an_answer_that_was_kept_against_its_score() -> None:
    session = toys.decode(toys.method(strategy="cascade", router=("entropy", dict(tau=64.0))))
    found = session.sink.steps[0].detail("answer_entropy")
    bits = [[found.columns["bits"][0][0] + math.pi, *found.columns["bits"][0][1:]]]
    token = (found.columns["tokens"][0][0] + 1) % 16
    for change, word in (
        ({"outcome": ["lost"]}, "is 'lost'"),
        ({"kept": False}, "breaks kept == 1"),
        ({"score": 65.0}, "breaks score == mean(bits)"),
        ({"read": 1}, "rows"),
        ({"bits": bits}, "breaks score == mean(bits)"),
        ({"bits": [[]]}, "other numbers than its tokens"),
        ({"asked": 2}, "breaks asked == rows"),
        ({"tokens": [[token, *found.columns["tokens"][0][1:]]]}, "the answer that it kept"),
        ({"outcome": ["other"]}, "come in an order that cannot be"),
        ({"tokens": [None]}, "is 'kept'"),
        ({"tokens": [[99]]}, "outside the vocabulary"),
    ):
        columns = {name: change.get(name, x) for name, x in found.columns.items()}
        values = {name: change.get(name, x) for name, x in found.values.items()}
        wrong = copy.deepcopy(session.sink)
        wrong.steps[0].details = [replace(found, columns=columns, values=values)]
        assert any(word in problem for problem in check(wrong).problems), (change, check(wrong).problems)
    wrong = copy.deepcopy(session.sink)
    wrong.header.method["router"]["tau"] = 0.01
    assert any("is 'kept'" in problem for problem in check(wrong).problems)


def test_answer_that_is_kept_tells_the_state_of_a_sampler_that_remembers() -> None:
    sampler = ("repetition_penalty", dict(penalty=1.3))
    session = toys.decode(
        toys.method(strategy="cascade", router=("entropy", dict(tau=64.0)), sampler=sampler)
    )
    assert (
        session.sink.steps[0].detail("answer_entropy").values["kept"]
        and check(session.sink).ok
        and session.sink.steps[0].sampler
    )


def test_router_of_another_sort_is_refused_with_a_way_out() -> None:
    with pytest.raises(MethodError, match=r"^draft_verify uses no router, so entropy would be ignored; "):
        toys.decode(toys.method(router=("entropy", dict(tau=2.0))))
