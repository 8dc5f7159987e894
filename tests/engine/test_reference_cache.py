"""The reference cache: true lost mass and drift, from full attention maps, without a change to the run itself."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import toys
from voted import held, maps, sharp

from decodescope.engine.core.component import build
from decodescope.engine.core.roles import WHOLE
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.weights import CalibrationData, parse_transform_list
from decodescope.engine.model.forward.executor import Executor
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import MethodError
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.session.session import Session
from decodescope.engine.trace import Trace, check, open_trace
from decodescope.engine.trace.query.comparability import comparison_key

PROMPT, TEXT = 24, toys.prompts(1, 40, seed=5)[0]


@pytest.mark.parametrize(
    ("name", "knobs"),
    [("h2o", dict(heavy=4, recent=4)), ("adakv", dict(prompt_budget=6, window=3, pool_radius=1))],
)
@torch.inference_mode()
def test_lost_mass_and_drift_are_those_of_the_full_maps(name: str, knobs: dict) -> None:
    decoder = sharp(2)
    lane, full, whole = Lane("target", decoder, build("policy", name, knobs)), maps(decoder, TEXT), sharp(2)
    lane.keep_reference()
    lane.read(TEXT[:PROMPT])
    logits = whole.forward(Feed.causal_chain(TEXT, 0), None)[0].log_softmax(-1)
    assert lane.reference.take_record() is None, "nobody's distribution was changed while the prompt was read"
    lost = cut = 0.0
    for at in range(PROMPT, 40, 2):
        before = held(lane)
        mine = lane.forward(Feed.causal_chain(TEXT[at : at + 2], at))[0].log_softmax(-1)
        lane.commit([0, 1])
        told, after = lane.reference.take_record(), held(lane)
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
    assert lane.reference.cache.fullest_length == 40 and lane.reference.cache.memory is not lane.cache.memory


def test_a_run_with_a_reference_is_the_run_without_and_says_so(tmp_path) -> None:
    """The target's text, passes, entries and bytes are equal; lossless decoding has no lost mass and no drift."""
    parts = dict(policy=("h2o", dict(heavy=4, recent=4)), drafter=("token_recycling", {"nodes": "16"}))
    plain, marked = (toys.decode(toys.method(**parts), toys.PROMPT * 3, reference=x) for x in (False, True))
    assert plain.tokens == marked.tokens and not plain.header.reference and marked.header.reference
    for a, b in zip(plain.sink.steps, marked.sink.steps, strict=True):
        assert [(x.lane, x.tokens, x.held) for x in a.passes] == [
            (x.lane, x.tokens, x.held) for x in b.passes
        ]
        assert (a.cache[0].held_bytes, a.cache[0].peak_bytes) == (
            b.cache[0].held_bytes,
            b.cache[0].peak_bytes,
        )
        told = b.cache[0].reference
        assert a.cache[0].reference is None and len(told.drift) == len(told.lost_mass) == len(b.emitted)
        assert told.held_bytes > b.cache[0].held_bytes and told.lost_mass.shape[1:] == (3, 2)
    assert check(marked.sink).ok
    marked.sink.save(tmp_path / "x.dstrace")
    again = open_trace(tmp_path / "x.dstrace")
    assert (
        again.header.reference
        and (again.steps[3].cache[0].reference.drift == marked.sink.steps[3].cache[0].reference.drift).all()
    )
    exact = toys.decode(prompt=toys.PROMPT, count=10, reference=True)
    assert all(
        x.cache[0].reference.lost_mass.max() < 1e-6 and x.cache[0].reference.drift.max() < 1e-6
        for x in exact.sink.steps
    )
    with pytest.raises(MethodError, match="a reference cache says nothing"):
        toys.decode(toys.method(strategy=("samples", dict(samples=2))), count=4, reference=True)


def lesser(words: str) -> tuple[Model, Model]:
    """A model that transforms made from a toy, and that toy."""
    whole = toys.pair()[0]
    decoder = whole.decoder
    for one in parse_transform_list(words):
        decoder = one.transform(decoder, CalibrationData(lambda: torch.zeros(0, dtype=torch.int64)))
    return replace(whole, name="lesser", decoder=decoder, spec=replace(decoder.spec, weights=words)), whole


@pytest.mark.parametrize("words", ["codes bits=3 group=16", "cut_layers skip=a1"])
@pytest.mark.parametrize("drafter", ["none", ("token_recycling", {"nodes": "16"})], ids=str)
def test_the_model_that_another_was_made_of_reads_along(words: str, drafter: Any) -> None:
    """After each token, KL(whole || made) and the whole model's choice are those of a forward pass of both over the text."""
    made, whole = lesser(words)
    method = toys.method(drafter=drafter)
    plain = toys.finish_session(Session(made, method, toys.PROMPT, max_new_tokens=24))
    run = toys.finish_session(
        Session(made, method, toys.PROMPT, models={WHOLE: whole}, max_new_tokens=24, reference="model")
    )
    assert (
        run.tokens == plain.tokens
        and run.reference_kind == run.sink.header.reference_kind == "model"
        and plain.reference_kind is False
    )
    ours, theirs = (
        x.decoder.forward(Feed.causal_chain(run.tokens[:-1], 0), None)[0].log_softmax(-1)
        for x in (made, whole)
    )
    kl = (theirs.exp() * (theirs - ours)).sum(-1)[len(toys.PROMPT) - 1 :]
    rows = [step.cache[0].reference for step in run.sink.steps]
    assert np.concatenate([x.drift for x in rows]) == pytest.approx(kl.tolist(), abs=1e-5)
    said = [token for x in rows for token in x.ids]
    assert said == theirs.argmax(-1)[len(toys.PROMPT) - 1 :].tolist()
    parted = sum(a != b for a, b in zip(said, run.tokens[len(toys.PROMPT) :], strict=True))
    assert parted > 2 and float(kl.max()) > 0.05, "the test needs models that differ"
    assert max(len(x.drift) for x in rows) > 1 or drafter == "none", "the test needs several rows a step"
    for a, b in zip(plain.sink.steps, run.sink.steps, strict=True):
        assert [(x.lane, x.tokens, x.held) for x in a.passes] == [
            (x.lane, x.tokens, x.held) for x in b.passes
        ]
        assert (
            b.cache[0].reference.weight_bytes == whole.spec.params * 8 and b.cache[0].reference.held_bytes > 0
        )
    assert comparison_key(run.sink.header) == comparison_key(plain.sink.header) and check(run.sink).ok


def test_a_model_that_nothing_was_made_of_agrees_with_itself() -> None:
    run = toys.decode(count=12, reference="model")
    rows = [step.cache[0].reference for step in run.sink.steps]
    assert max(float(x.drift.max()) for x in rows) < 1e-9 and [x.weight_bytes for x in rows] == [0] * 12
    assert [x.ids for x in rows] == [x.emitted for x in run.sink.steps]


def test_who_can_not_read_along_is_told_so() -> None:
    made, whole = lesser("cut_layers skip=a1")
    for more, match in [
        (dict(reference="models"), "reference = 'models': Did you mean"),
        (dict(reference=True), "lesser lacks heads, so a reference with a full cache cannot measure"),
    ]:
        with pytest.raises(ValueError, match=match):
            Session(made, None, toys.PROMPT, models={WHOLE: whole}, **more)  # type: ignore[arg-type] # of several kinds
    oracle = toys.method(policy=("h2o", dict(heavy=4, recent=4, oracle=True)))
    with pytest.raises(MethodError, match="h2o goes by the attention of a second, full cache of the target"):
        toys.decode(oracle, count=4, reference="model")
    with pytest.raises(MethodError, match="no model can read along"):
        toys.decode(toys.method(strategy=("samples", dict(samples=2))), count=4, reference="model")


def forked(run: Any, **more: Any) -> Fork:
    big, small = toys.pair()
    models = {**toys.helper_models(), "draft": small, **more.pop("models", {})}
    fork = Fork(more.pop("model", big), run.header, list(run.sink.steps), 3, models=models, **more)
    fork.sink = Trace()
    while fork.end is None:
        fork.step()
    return fork


def test_a_fork_keeps_who_read_along() -> None:
    made, whole = lesser("codes bits=3 group=16")
    run = toys.finish_session(
        Session(made, toys.method(), toys.PROMPT, models={WHOLE: whole}, max_new_tokens=8, reference="model")
    )
    for method in (None, toys.method(policy=("h2o", dict(heavy=4, recent=4)))):
        fork = forked(run, model=made, models={WHOLE: whole}, method=method)
        assert fork.sink.header.reference_kind == "model" and check(fork.sink).ok
        rows = zip(run.sink.steps[:3], fork.sink.steps[:3], strict=True)
        assert all((a.cache[0].reference.drift == b.cache[0].reference.drift).all() for a, b in rows)
        assert all(len(x.cache[0].reference.ids) == 1 for x in fork.sink.steps)


def test_a_fork_keeps_the_reference_of_its_run() -> None:
    run = toys.decode(
        toys.method(policy=("h2o", dict(heavy=4, recent=4))), toys.PROMPT * 3, count=8, reference=True
    )
    fork = forked(run, seed=1)
    assert fork.sink.header.reference
    assert check(fork.sink).ok
    for a, b in zip(run.sink.steps, fork.sink.steps, strict=True):
        assert (a.cache[0].reference.drift == b.cache[0].reference.drift).all()
    other = forked(run, method=toys.method(policy=("h2o", dict(heavy=2, recent=4))))
    told = [(len(x.cache[0].reference.drift), x.cache[0].appended) for x in other.sink.steps]
    assert told == [(1, 1)] * 8, "what was read anew stands in the record already"
    step = other.sink.steps[5]
    step.cache[0].reference.drift = np.zeros(2, np.float32)
    step.cache[0].reference.lost_mass = np.zeros((2, 3, 2), np.float32)
    step.cache[0].reference.said = np.zeros(2, np.int32)
    assert any("drift of 2 rows, and it took up 1" in x for x in check(other.sink).problems)


@pytest.mark.parametrize("strategy", ["draft_verify", ("beam", dict(width=2))], ids=str)
def test_the_time_of_a_full_cache_is_in_no_timing_of_the_run(
    strategy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock where each of the reference's passes takes an hour, no timing of the run itself is that long."""
    hour, late, now = 3.6e9, [0.0], time.perf_counter

    class Slow(Executor):
        def run(self, *given: Any) -> torch.Tensor:
            late[0] += hour / 1e6
            return super().run(*given)

    monkeypatch.setattr(time, "perf_counter", lambda: now() + late[0])
    big, _ = toys.pair()
    made = toys.method(policy=("h2o", dict(heavy=4, recent=4)), strategy=strategy)
    session = Session(big, made, toys.PROMPT * 3, max_new_tokens=4, reference=True)
    session.sink = Trace()
    session.target.reference.executor = Slow("cpu")
    steps = list(session.stream())
    assert (
        len(steps) == 4
        and all(step.cache[0].reference.wall_us >= hour for step in steps)
        and late[0] * 1e6 == 5 * hour
    )
    told = [session.sink.prefill.wall_us, session.sink.end.wall_us]
    told += [x for s in steps for x in (s.t_us, s.wall_us, s.verify_us, s.commit_us, s.policy_us)]
    assert min(told) >= 0 and max(told) < hour / 2


def test_nor_is_the_time_that_it_takes_while_a_strategy_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    hour = 3.6e9
    session = Session(toys.pair()[0], toys.method(), toys.PROMPT, max_new_tokens=2, reference=True)
    session.sink = Trace()

    def begin(s: Any) -> None:
        s.target.reference.us, session._started = hour, session._started - hour / 1e6

    monkeypatch.setattr(type(session.method.strategy), "begin", lambda self, s: begin(s))
    steps = list(session.stream())
    assert 0 <= session.sink.prefill.wall_us < hour / 2 and max(step.t_us for step in steps) < hour / 2
