"""SPEED: the text is the target's, several tokens are really in flight, and the ticks match tokens moved one by one."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
import toys
from law.cases import SAMPLERS, layered, models, true_law

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.methods.strategies.speed import Speed
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.testing.walk import Walk, distribution_distance

DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=6), 3, torch.float64))


def run(
    count: int = 40,
    sampler: Any = "greedy",
    model=DEEP,
    prompt=toys.PROMPT,
    level: str = "decisions",
    **knobs,
) -> Session:
    method = toys.method(strategy=("speed", knobs), sampler=sampler)
    return toys.decode(method, prompt, count, pair=(model, model), level=level)


def said(session: Session) -> list[dict[str, Any]]:
    return [step.draft.notes["speed"] for step in session.sink.steps]


def copied(layers: int, doing: int) -> Any:
    """A model in which only the first layers add anything: an exit after these is always right."""
    decoder = toys.decoder(toys.toy_spec(n_layers=layers), 3, torch.float64)
    for layer in decoder.layers[doing:]:
        layer.out, layer.down = layer.out * 0, layer.down * 0
    return toys.model(decoder)


@torch.inference_mode()
def guess(text: list[int], e: int) -> int:
    """The likeliest token after a text according to the first e layers with the last norm."""
    whole = DEEP.decoder
    short = Decoder(replace(whole.spec, n_layers=e), whole.embed, whole.layers[:e], whole.norm, whole.head)
    return int(short.forward(Feed.causal_chain(text, 0), None)[0, -1].argmax())


def simulated(prompt: list[int], text: list[int], e: int) -> tuple[list[int], int]:
    """The tick at which each token of a greedy text is finished, and the most tokens in flight.

    Every token in flight moves one layer per tick, and each one that has passed e layers guesses the next token.
    """
    layers, tick, ends, most = DEEP.spec.n_layers, 0, list[int](), 0
    flight = [[prompt[-1], 0]]  # token, layers that it has passed
    read = list(prompt)
    for token in text:
        while flight[0][1] < layers:
            for one in flight:
                one[1] += 1
            tick += 1
            most = max(most, len(flight))
            if flight[-1][1] == e:
                flight.append([guess([*read, *(x for x, _ in flight[1:])], e), 0])
        ends.append(tick)
        read.append(token)
        flight = flight[1:] if flight[1][0] == token else [[token, 0]]
    return ends, most


# ---- the text and its ticks


@pytest.mark.parametrize(("e", "most"), [(1, 6), (2, 3), (3, 2), (4, 2), (5, 2)])
def test_the_text_is_greedy_and_the_clock_is_that_of_tokens_moved_tick_by_tick(e: int, most: int) -> None:
    right = 0
    for prompt in toys.prompts(2, 12, seed=5):
        session = run(16, prompt=prompt, layers=e)
        text, notes = session.end.tokens, said(session)
        assert text == toys.greedy_text(DEEP.decoder, prompt, 16) and check(session.sink).ok
        assert ([x["clock"] for x in notes], most) == simulated(prompt, text, e)
        assert max(len(x["flight"]) for x in notes) == most
        right += sum(x["head"] > 0 for x in notes)
    assert e < 3 or 0 < right < 30, "the test needs guesses that are right, and others"


@pytest.mark.parametrize("e", [1, 2, 3])
def test_where_the_later_layers_add_nothing_a_text_takes_m_and_e_for_each_further_token(e: int) -> None:
    session = run(20, model=copied(7, e), layers=e)
    assert said(session)[-1]["clock"] == 7 + 19 * e and {x["work"] for x in said(session)[1:]} == {7}
    assert [step.origins for step in session.sink.steps] == [["accepted"]] * 20
    lanes = [[bar[0] for bar in x["flight"]] for x in said(session)]
    assert all(a[1:] == b[:-1] for a, b in pairwise(lanes)), "a token stays in its lane"


# ---- the work is real


def test_what_is_in_flight_has_run_its_layers_once_and_they_are_those_of_a_fresh_pass() -> None:
    target, kept = copied(7, 3), 0
    session = Session(target, toys.method(strategy=("speed", {"layers": 2})), toys.PROMPT, max_new_tokens=60)
    session.start()
    while not session.is_done:
        session.step()
        assert toys.matches_fresh_reading(session.target) and all(
            store.m == 0 for store in session.target.cache.layers
        )
        ahead = session.scratch.ahead
        if ahead is None or session.is_done:
            continue
        text = [*session.tokens, *ahead.tokens]
        assert ahead.text == session.tokens and [kv.shape[3] for kv in ahead.kv] == [3, 2, 2, 1, 1]
        with torch.inference_mode():
            for i, state in enumerate(ahead.states):
                fresh = target.decoder.states_before(
                    Feed.causal_chain(text[: len(session.tokens) + i], 0), None, 5 - 2 * i
                )
                assert torch.allclose(state[0, 0], fresh[0, -1], atol=1e-12)
        kept += len(ahead.states) == 3
    assert kept > 5, "the test needs a full pipeline"


def test_passes_and_their_price_are_those_of_the_layers_that_ran() -> None:
    notes = said(session := run(30, layers=2))
    for step, x in zip(session.sink.steps, notes, strict=True):
        spans = [one.attn if isinstance(one.attn, list) else [*range(one.attn)] for one in step.passes[1:]]
        assert sum(map(len, spans)) == x["work"] - x["ticks"] and {one.tokens for one in step.passes} == {1}
        asked = sum(one.tests == [2] for one in step.passes)
        ops = [op for one in step.passes for op in ops_of(DEEP.spec, one, draft=step.draft)]
        asks = sum(op.name in ("exit_test", "lm_head") for op in ops) - 1
        assert asks == asked == (1 if x["head"] else 3), "each token names one other, once"
    assert {x["head"] for x in notes} == {0, 4}, "the test needs both"


def test_a_record_that_looks_inside_passes_changes_neither_text_nor_ticks() -> None:
    usual, fields = (run(20, layers=2, level=level) for level in ("decisions", "full"))
    assert fields.end.tokens == usual.end.tokens and check(fields.sink).ok
    assert [x["flight"] for x in said(fields)] == [x["flight"] for x in said(usual)]


def test_trained_exits_guess_in_the_place_of_the_last_norm() -> None:
    plain, trained = (run(30, model=toys.pair()[0], layers=1, heads=heads) for heads in ("none", "exits"))
    assert plain.end.tokens == trained.end.tokens
    assert [s.draft.tokens for s in plain.sink.steps] != [s.draft.tokens for s in trained.sink.steps]
    assert trained.sink.steps[0].passes[0].rank and not plain.sink.steps[0].passes[0].rank


# ---- the distribution


@pytest.mark.parametrize("sampler", ["T=1", "T=0.7", "penalty, mirostat"])
def test_the_law_is_the_targets(sampler: str) -> None:
    """All paths of whole runs of three tokens over three ids."""
    method = Method(strategy=Speed(layers=1), sampler=SAMPLERS[sampler][0])
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
        ("clock", 400, "its clocks are at 400"),
        ("work", 1, "is said to have run 1 layers, and 6 and 6 of guesses are due"),
        ("exit", 3, "guesses run the layers"),
        ("exit", 6, "where no guess could end"),
        ("flight", [[0, 0, 5, 1, "read"]], r"ran in the ticks \[\[0, 5\]\], and \[\["),
    ],
)
def test_the_check_derives_the_ticks_again(name: str, value: Any, problem: str) -> None:
    trace = run(20, layers=2).sink
    assert check(trace).counts["ticks of a pipeline"] == 20
    at = next(i for i, x in enumerate(trace.steps) if i and not x.draft.notes["speed"]["head"])
    trace.steps[at].draft.notes = copy.deepcopy(trace.steps[at].draft.notes)
    trace.steps[at].draft.notes["speed"][name] = value
    report = check(trace)
    assert any(x.startswith(f"step {at}") for x in report.problems)
    assert re.search(problem, str(report))


REFUSED = [(6, 6, r"layers = 6: toy has 6 layers; choose 1 to 5\."), (1, 1, "has one")]


@pytest.mark.parametrize(("layers", "knobs", "why"), REFUSED)
def test_an_exit_that_cannot_be_is_refused(layers: int, knobs: int, why: str) -> None:
    with pytest.raises(MethodError, match=why):
        toys.method(strategy=("speed", {"layers": knobs})).check(toys.toy_spec(n_layers=layers))
