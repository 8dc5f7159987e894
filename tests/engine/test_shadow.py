"""The shadow cache: true lost mass and drift, from full maps, beside a run that stays as it is."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
import toys
from voted import held, maps, sharp

from decodescope.engine.core.component import build
from decodescope.engine.decoding.lane import Lane
from decodescope.engine.method import MethodError
from decodescope.engine.model.executor import Executor
from decodescope.engine.model.feed import Feed
from decodescope.engine.replay.fork import Fork
from decodescope.engine.session import Session
from decodescope.engine.trace import Trace, check, open_trace

PROMPT, TEXT = 24, toys.prompts(1, 40, seed=5)[0]


@pytest.mark.parametrize(("name", "knobs"), [("h2o", dict(heavy=4, recent=4)), ("adakv", dict(chosen=6, window=3, reach=1))])
@torch.inference_mode()
def test_lost_mass_and_drift_are_those_of_the_full_maps(name: str, knobs: dict) -> None:
    decoder = sharp(2)
    lane, full, whole = Lane("target", decoder, build("policy", name, knobs)), maps(decoder, TEXT), sharp(2)
    lane.keep_shadow()
    lane.read(TEXT[:PROMPT])
    logits = whole.forward(Feed.causal(TEXT, 0), None)[0].log_softmax(-1)
    assert lane.shadow.took() is None, "nobody's distribution was changed while the prompt was read"
    lost = cut = 0.0
    for at in range(PROMPT, 40, 2):
        before = held(lane)
        mine = lane.forward(Feed.causal(TEXT[at : at + 2], at))[0].log_softmax(-1)
        lane.commit([0, 1])
        told, after = lane.shadow.took(), held(lane)
        for i, h in [(i, h) for i in range(2) for h in range(2)]:
            rows = full[i][h, :, at : at + 2].mean(0)  # [2, n]
            there = [*before[i][h], at, at + 1]
            gone = [p for p in range(at + 2) if p not in there]
            assert told.lost_mass[:, i, h] == pytest.approx(rows[:, gone].sum(1).tolist(), abs=1e-5)
            left = [p for p in there if p not in after[i][h]]
            assert told.cut_mass[i, h] == pytest.approx(float(rows[1, left].sum()), abs=1e-5)
            lost, cut = lost + float(told.lost_mass.sum()), cut + float(told.cut_mass.sum())
        kl = (logits[at : at + 2].exp() * (logits[at : at + 2] - mine)).sum(-1)
        assert told.drift == pytest.approx(kl.tolist(), abs=1e-5)
    assert lost > 1 and (cut > 0.01) is (name == "h2o"), "what cuts once cuts no more"
    assert lane.shadow.cache.held == 40 and lane.shadow.cache.memory is not lane.cache.memory


def test_a_run_with_a_shadow_is_the_run_without_and_says_so(tmp_path) -> None:
    """Text, passes, entries and bytes of the target; lossless decoding loses and drifts nothing."""
    parts = dict(policy=("h2o", dict(heavy=4, recent=4)), drafter=("token_recycling", {"nodes": "16"}))
    plain, marked = (toys.decode(toys.method(**parts), toys.PROMPT * 3, shadow=x) for x in (False, True))
    assert plain.tokens == marked.tokens and not plain.header.shadow and marked.header.shadow
    for a, b in zip(plain.sink.steps, marked.sink.steps, strict=True):
        assert [(x.lane, x.tokens, x.held) for x in a.passes] == [(x.lane, x.tokens, x.held) for x in b.passes]
        assert (a.cache[0].held_bytes, a.cache[0].peak_bytes) == (b.cache[0].held_bytes, b.cache[0].peak_bytes)
        told = b.cache[0].shadow
        assert a.cache[0].shadow is None and len(told.drift) == len(told.lost_mass) == len(b.emitted)
        assert told.held_bytes > b.cache[0].held_bytes and told.lost_mass.shape[1:] == (3, 2)
    assert check(marked.sink).ok
    marked.sink.save(tmp_path / "x.dstrace")
    again = open_trace(tmp_path / "x.dstrace")
    assert again.header.shadow and (again.steps[3].cache[0].shadow.drift == marked.sink.steps[3].cache[0].shadow.drift).all()
    exact = toys.decode(prompt=toys.PROMPT, count=10, shadow=True)
    assert all(x.cache[0].shadow.lost_mass.max() < 1e-6 and x.cache[0].shadow.drift.max() < 1e-6 for x in exact.sink.steps)
    with pytest.raises(MethodError, match="a shadow cache says nothing"):
        toys.decode(toys.method(strategy=("samples", dict(samples=2))), count=4, shadow=True)


def forked(run: Any, **more: Any) -> Fork:
    big, small = toys.pair()
    fork = Fork(big, run.header, list(run.sink.steps), 3, models={**toys.helpers(), "draft": small}, **more)
    fork.sink = Trace()
    while fork.end is None:
        fork.step()
    return fork


def test_a_fork_keeps_the_shadow_of_its_run() -> None:
    run = toys.decode(toys.method(policy=("h2o", dict(heavy=4, recent=4))), toys.PROMPT * 3, count=8, shadow=True)
    fork = forked(run, seed=1)
    assert fork.sink.header.shadow
    assert check(fork.sink).ok
    for a, b in zip(run.sink.steps, fork.sink.steps, strict=True):
        assert (a.cache[0].shadow.drift == b.cache[0].shadow.drift).all()
    other = forked(run, method=toys.method(policy=("h2o", dict(heavy=2, recent=4))))
    told = [(len(x.cache[0].shadow.drift), x.cache[0].appended) for x in other.sink.steps]
    assert told == [(1, 1)] * 8, "what was read anew stands in the record already"
    step = other.sink.steps[5]
    step.cache[0].shadow.drift = np.zeros(2, np.float32)
    step.cache[0].shadow.lost_mass = np.zeros((2, 3, 2), np.float32)
    assert any("drift of 2 rows, and it took up 1" in x for x in check(other.sink).problems)


@pytest.mark.parametrize("strategy", ["draft_verify", ("beam", dict(width=2))], ids=str)
def test_the_time_of_a_full_cache_is_in_no_timing_of_the_run(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which each of its passes takes an hour, nothing that the run tells of itself is that long."""
    hour, late, now = 3.6e9, [0.0], time.perf_counter

    class Slow(Executor):
        def run(self, *given: Any) -> torch.Tensor:
            late[0] += hour / 1e6
            return super().run(*given)

    monkeypatch.setattr(time, "perf_counter", lambda: now() + late[0])
    big, _ = toys.pair()
    made = toys.method(policy=("h2o", dict(heavy=4, recent=4)), strategy=strategy)
    session = Session(big, made, toys.PROMPT * 3, max_new_tokens=4, shadow=True)
    session.sink = Trace()
    session.target.shadow.executor = Slow("cpu")
    steps = list(session.stream())
    assert len(steps) == 4 and all(step.cache[0].shadow.wall_us >= hour for step in steps) and late[0] * 1e6 == 5 * hour
    told = [session.sink.prefill.wall_us, session.sink.end.wall_us]
    told += [x for s in steps for x in (s.t_us, s.wall_us, s.verify_us, s.commit_us, s.policy_us)]
    assert min(told) >= 0 and max(told) < hour / 2


def test_nor_is_the_time_that_it_takes_while_a_strategy_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    hour = 3.6e9
    session = Session(toys.pair()[0], toys.method(), toys.PROMPT, max_new_tokens=2, shadow=True)
    session.sink = Trace()

    def begin(s: Any) -> None:
        s.target.shadow.us, session._started = hour, session._started - hour / 1e6

    monkeypatch.setattr(type(session.method.strategy), "begin", lambda self, s: begin(s))
    steps = list(session.stream())
    assert 0 <= session.sink.prefill.wall_us < hour / 2 and max(step.t_us for step in steps) < hour / 2
