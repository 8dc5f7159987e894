"""Kangaroo: two exits, first layers that run once, and an adapter that reads the accepted tokens."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.model.forward.feed import Feed


def settled(later: float = 0.0) -> toys.Model:
    """A target whose layers after the first hardly change the state, and whose adapter adds nothing: the draft is right."""
    decoder = toys.decoder(toys.SPEC, toys.LIVELY, torch.float64)
    for layer in decoder.layers[1:]:
        layer.out, layer.down = layer.out * later, layer.down * later
    adapter = decoder.heads["kangaroo"]
    with torch.no_grad():
        adapter.attention.out.weight.zero_()
        adapter.last.fill_(1.0)
    return toys.model(decoder)


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_kangaroo_is_always_right_where_the_later_layers_add_nothing(sampler: str) -> None:
    """All are accepted: the adapter still lacks the state of the last drafted token, and reads it before the next draft."""
    target = settled()
    made = toys.decode(
        toys.method(drafter=("kangaroo", {"max_draft_tokens": 4, "min_probability": 0.0}), sampler=sampler),
        count=50,
        pair=(target, target),
    )
    assert [step.accepted for step in made.sink.steps] == [4] * 10
    if sampler == "greedy":
        assert made.end.tokens == toys.greedy_text(target.decoder, toys.PROMPT, 50)


def test_kangaroo_runs_the_first_layers_once_per_token() -> None:
    trace = toys.decode(
        toys.method(drafter=("kangaroo", {"max_draft_tokens": 4, "min_probability": 0.3}))
    ).sink
    for step in trace.steps[:-1]:
        passes = [(p.phase, p.tokens, p.attn, p.ffn) for p in step.passes if p.phase != "catch_up"]
        n = step.drafted
        due = [("draft", 1, 1, 1)] * (n + 1) + [("verify", n + 1, [1, 2], [1, 2])]
        assert passes == due, "every row: layer 0, then layers 1 and 2"
    assert [p.phase for p in trace.steps[0].passes if p.phase == "catch_up"] == ["catch_up"], (
        "the prompt, for the adapter"
    )
    assert all(p.phase != "catch_up" for step in trace.steps[1:] for p in step.passes)


def test_kangaroo_runs_them_again_where_a_policy_asks_for_their_attention() -> None:
    trace = toys.decode(
        toys.method(
            drafter=("kangaroo", {"max_draft_tokens": 4}), policy=("h2o", {"heavy": 60, "recent": 60})
        )
    ).sink
    verify = [p for step in trace.steps for p in step.passes if p.phase == "verify"]
    assert verify and all(p.attn is None for p in verify)


def test_kangaroo_exits_by_threshold_or_length_and_says_which() -> None:
    lengths = {
        stop: {step.drafted for step in toys.decode(
            toys.method(drafter=("kangaroo", {"max_draft_tokens": 5, "min_probability": stop}))).sink.steps[:-5]}
        for stop in (0.0, 1.0)
    }  # fmt: skip
    assert lengths == {0.0: {5}, 1.0: {1}}
    exits = set()
    for step in toys.decode(
        toys.method(drafter=("kangaroo", {"max_draft_tokens": 5, "min_probability": 0.5}))
    ).sink.steps[:-5]:
        sure = step.draft.notes["sure"]
        exits.add(step.draft.notes["exit"])
        assert all(x >= 0.5 for x in sure[:-1]), "all but the last drafted token were sure enough"
        assert (sure[-1] < 0.5) == (step.draft.notes["exit"] == "threshold") and step.draft.notes[
            "layers"
        ] == [1, 3]
    assert exits == {"threshold", "length"}


@pytest.mark.parametrize("target", [toys.pair()[0], settled()], ids=["some accepted", "all accepted"])
def test_kangaroo_adapter_reads_what_was_accepted_and_nothing_else(target: toys.Model) -> None:
    method = toys.method(drafter=("kangaroo", {"max_draft_tokens": 3, "min_probability": 0.0}))
    session = Session(target, method, toys.PROMPT, max_new_tokens=30)
    session.start()
    while not session.is_done:
        drafter = session.drafter
        with torch.inference_mode():
            drafter._catch_up()
            states = target.decoder.states_before(Feed.causal_chain(session.tokens[:-1], 0), None, 1)
            store = drafter._adapter.attention.store()
            drafter._adapter(states, 0, store)
        assert drafter._store.m == 0 and drafter._store.n == len(session.tokens) - 1, "all but the root"
        assert torch.allclose(drafter._store.k, store.k, atol=1e-9) and torch.allclose(
            drafter._store.v, store.v, atol=1e-9
        )
        session.step()


def test_kangaroo_refuses_a_depth_that_may_leave_before_its_exit() -> None:
    with pytest.raises(
        MethodError,
        match=r"its exit layer on, confidence_exit may leave before; choose adaptive_depth all_layers",
    ):
        toys.decode(toys.method(drafter="kangaroo", adaptive_depth="confidence_exit"))
