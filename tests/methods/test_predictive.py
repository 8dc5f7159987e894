"""Predictive pipeline: the text is the target's, branches really begin the next token, and the ticks match the formula."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
import toys
from law.cases import SAMPLERS, layered, models, true_law

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.methods.strategies.predictive import Predictive
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.testing.walk import Walk, distribution_distance

DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=6), 3, torch.float64))


def pipeline(sampler: Any = "greedy", **knobs) -> Method:
    return toys.method(strategy=("predictive", knobs), sampler=sampler)


def run(
    count: int = 40,
    sampler: Any = "greedy",
    model=DEEP,
    prompt=toys.PROMPT,
    level: str = "decisions",
    **knobs,
) -> Session:
    return toys.decode(pipeline(sampler, **knobs), prompt, count, pair=(model, model), level=level)


def said(session: Session) -> list[dict[str, Any]]:
    return [step.draft.notes["predictive"] for step in session.sink.steps]


@torch.inference_mode()
def guesses(text: list[int], d: int, k: int) -> list[int]:
    """The likeliest tokens after a text according to the first d layers with the last norm."""
    whole = DEEP.decoder
    short = Decoder(replace(whole.spec, n_layers=d), whole.embed, whole.layers[:d], whole.norm, whole.head)
    return short.forward(Feed.causal_chain(text, 0), None)[0, -1].topk(k).indices.tolist()


def simulated(prompt: list[int], text: list[int], d: int, k: int) -> list[int]:
    """The tick at which each token of a greedy text is finished, by moving every token in flight one layer per tick."""
    layers, tick, ends = DEEP.spec.n_layers, 0, list[int]()
    flight = {prompt[-1]: 0}  # token of the next place -> layers that it has passed
    for i, token in enumerate(text):
        read = [*prompt, *text[:i]]
        flight = {read[-1]: flight.get(read[-1], 0)}  # the others are dropped
        branches: dict[int, int] = {}
        while flight[read[-1]] < layers:
            if flight[read[-1]] >= d and not branches:
                branches = dict.fromkeys(guesses(read, d, k), 0)
            flight[read[-1]] += 1
            branches = {x: ran + 1 for x, ran in branches.items()}
            tick += 1
        ends.append(tick)
        flight = {token: branches.get(token, 0)}
    return ends


# ---- the text and its ticks


@pytest.mark.parametrize(("d", "k"), [(3, 1), (3, 3), (4, 2), (5, 1)])
def test_the_text_is_greedy_and_the_clock_is_that_of_tokens_moved_tick_by_tick(d: int, k: int) -> None:
    right = 0
    for prompt in toys.prompts(2, 12, seed=5):
        session = run(20, prompt=prompt, layers=d, branches=k)
        text, notes = session.end.tokens, said(session)
        assert text == toys.greedy_text(DEEP.decoder, prompt, 20) and check(session.sink).ok
        assert [x["clock"] for x in notes] == simulated(prompt, text, d, k)
        r = sum(x["head"] > 0 for x in notes) / 20
        assert notes[-1]["clock"] == pytest.approx(20 * (6 - r * (6 - d))), "M - r (M - d) ticks a token"
        assert notes[-1]["plain"] == 120 and {x["exit"] for x in notes} == {d}
        right += round(20 * r)
    assert 0 < right < 38, "the test needs guesses that are right, and others"


def test_where_the_later_layers_add_nothing_every_token_but_the_first_is_ahead() -> None:
    decoder = toys.decoder(toys.toy_spec(n_layers=4), 3, torch.float64)
    for layer in decoder.layers[2:]:
        layer.out, layer.down = layer.out * 0, layer.down * 0
    session = run(20, model=toys.model(decoder), branches=1)
    assert [x["ticks"] for x in said(session)] == [4] + [2] * 19 and said(session)[-1]["clock"] == 42
    assert [step.origins for step in session.sink.steps] == [["accepted"]] * 20


# ---- the work is real


def test_a_kept_branch_ran_its_first_layers_once_and_they_are_those_of_a_fresh_pass() -> None:
    target, kept, dropped = DEEP, 0, 0
    session = Session(target, pipeline(layers=4, branches=2), toys.PROMPT, max_new_tokens=30)
    session.start()
    while not session.is_done:
        session.step()
        assert toys.matches_fresh_reading(session.target) and all(
            store.m == 0 for store in session.target.cache.layers
        )
        ahead = session.scratch.ahead
        if ahead is None or session.is_done:
            dropped += not session.is_done
            continue
        assert ahead.text == session.tokens
        with torch.inference_mode():
            feed = Feed.causal_chain(session.tokens[-1:], len(session.tokens) - 1)
            states = target.decoder.states_before(feed, session.target.cache, 2)
        assert torch.allclose(states, ahead.states[0], atol=1e-12)
        for store, kv in zip(session.target.cache.layers, ahead.kv, strict=False):
            assert torch.allclose(store.newest_rows(1), kv, atol=1e-12)
        session.target.rollback()
        kept += 1
    assert kept > 5 and dropped > 5, "the test needs both"


def test_passes_and_their_price_are_those_of_the_layers_that_ran() -> None:
    for step, x in zip((session := run(layers=4, branches=3)).sink.steps, said(session), strict=True):
        root, branches = step.passes
        assert (root.phase, root.tokens, root.attn) == ("verify", 1, [2, 3, 4, 5] if x["head"] else None)
        assert (branches.phase, branches.tokens, branches.attn) == ("draft", 3, 2)
        assert x["work"] == 6 - x["head"] + 3 * 2
        ops = ops_of(DEEP.spec, root, draft=step.draft)
        assert (
            sum(op.name == "lm_head" for op in ops) <= 1 and len([op for op in ops if "exit" in op.name]) == 1
        )
        assert not [op for op in ops_of(DEEP.spec, branches) if op.layer is None and op.flops], (
            "no branch is unembedded"
        )
    assert {x["head"] for x in said(session)} == {0, 2}


def test_a_record_that_looks_inside_passes_changes_neither_text_nor_ticks() -> None:
    usual, fields = (run(20, layers=4, level=level) for level in ("decisions", "full"))
    assert fields.end.tokens == usual.end.tokens and check(fields.sink).ok
    assert [x["clock"] for x in said(fields)] == [x["clock"] for x in said(usual)]
    assert all(step.passes[0].attn is None and step.passes[0].instrumented for step in fields.sink.steps)


def test_a_branch_of_another_text_is_not_gone_on_with() -> None:
    session = Session(DEEP, pipeline(layers=4, branches=2), toys.PROMPT, max_new_tokens=30)
    while not (session.scratch and session.scratch.ahead):
        session.step()
    copied = session.branch()
    copied.scratch.ahead.text[3] += 1
    records = [x.step() for x in (session, copied)]
    assert [x.draft.notes["predictive"]["head"] for x in records] == [2, 0]
    assert records[0].emitted == records[1].emitted


def test_trained_exits_guess_in_the_place_of_the_last_norm() -> None:
    plain, trained = (run(30, model=toys.pair()[0], heads=heads, branches=2) for heads in ("none", "exits"))
    assert plain.end.tokens == trained.end.tokens
    assert [s.draft.tokens for s in plain.sink.steps] != [s.draft.tokens for s in trained.sink.steps]
    assert trained.sink.steps[0].passes[0].rank and not plain.sink.steps[0].passes[0].rank


# ---- the distribution


@pytest.mark.parametrize(
    ("sampler", "branches"), [("T=1", 1), ("top-p 0.8", 2), ("penalty, mirostat", 2), ("T=0.7", 2)]
)
def test_the_law_is_the_targets(sampler: str, branches: int) -> None:
    """All paths of whole runs of three tokens over three ids."""
    method = Method(strategy=Predictive(branches=branches), sampler=SAMPLERS[sampler][0])
    target = layered(3, "mixed")[0]
    walk = Walk(method, {**models(3, "mixed", Drafter()), "target": target}, 3)
    assert (
        distribution_distance(walk.full_run_distribution(), true_law(3, sampler, 3, layers="mixed")) <= 1e-12
    )
    assert walk.refused and walk.kept


# ---- the check


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("head", 2, "is said to be 2 layers ahead"),
        ("ticks", 5, "and 6 of 6 layers were left to run"),
        ("clock", 400, "its clocks are at 400"),
        ("plain", 1, "and 1, and"),
        ("work", 1, "is said to have run 1 layers, and 6 and 9 of guesses are due"),
        ("exit", 2, "where no guess could end"),
        ("flight", [[0, 0, 5, 1, "read"]], r"ran in the ticks \[\[0, 5\]\], and \[\["),
        ("exit", "deep", "in whole numbers"),
    ],
)
def test_the_check_derives_the_ticks_again(name: str, value: Any, problem: str) -> None:
    trace = run(20).sink
    assert check(trace).counts["ticks of a pipeline"] == 20
    at = next(i for i, x in enumerate(trace.steps) if i and not x.draft.notes["predictive"]["head"])
    trace.steps[at].draft.notes = copy.deepcopy(trace.steps[at].draft.notes)
    trace.steps[at].draft.notes["predictive"][name] = value
    report = check(trace)
    assert any(x.startswith(f"step {at}") for x in report.problems)
    assert re.search(problem, str(report))


def test_the_check_sees_a_pass_that_ran_again_what_a_branch_had_run() -> None:
    trace = run(20).sink
    at = next(i for i, x in enumerate(trace.steps) if x.draft.notes["predictive"]["head"])
    trace.steps[at].passes[0].attn = trace.steps[at].passes[0].ffn = None
    assert "3 layers ahead, and its passes did not run the others" in str(check(trace))


# ---- what it refuses


@pytest.mark.parametrize(
    ("layers", "knobs", "said"),
    [
        (
            6,
            {"layers": 2},
            r"layers = 2: toy has 6 layers, and the exit must be in the middle or above; choose 3 to 5, or",
        ),
        (6, {"layers": 6}, r"layers = 6: toy has 6 layers"),
        (3, {"layers": 1}, r"choose 2 to 2, or 0 for the middle\."),
        (1, {}, r"and toy has one; choose draft_verify\."),
    ],
)
def test_an_exit_that_cannot_be_is_refused(layers: int, knobs: dict, said: str) -> None:
    with pytest.raises(MethodError, match=said):
        pipeline(**knobs).check(toys.toy_spec(n_layers=layers))
