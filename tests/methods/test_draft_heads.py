"""Draft heads: whatever their weights are, the distribution is the target's; and a drafter reads the right state."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.replay.exact_distribution import exact_distribution
from decodescope.engine.trace import check

KINDS = ("medusa", "hydra", "eagle", "eagle2", "eagle3", "kangaroo")
SMALL = {
    "medusa": dict(nodes=5),
    "hydra": dict(nodes=5),
    "eagle": dict(nodes=4, depth=2),
    "eagle2": dict(nodes=4, depth=2, width=2),
    "eagle3": dict(nodes=4, depth=2, width=2),
    "kangaroo": dict(max_draft_tokens=2, min_probability=0.0),
}
SAMPLERS = {
    "top-k 2": (["temperature", "top_k"], {"temperature": {"temperature": 1.0}, "top_k": {"k": 2}}),
    "hot, penalty": (
        ["repetition_penalty", "temperature", "top_k"],
        {"repetition_penalty": {"penalty": 1.5}, "temperature": {"temperature": 1.5}, "top_k": {"k": 3}},
    ),
}
# sampler and length of the texts whose distribution is counted
LAWS = [("top-k 2", 3), ("hot, penalty", 2), pytest.param("hot, penalty", 3, marks=pytest.mark.nightly)]
V5 = toys.model(toys.decoder(toys.toy_spec(vocab=5), 3, torch.float64, sharp=2.0))


def method(drafter: str | None, sampler: str, **settings) -> toys.Method:
    names, knobs = SAMPLERS[sampler]
    chosen = {} if drafter is None else {"drafter": drafter}
    return toys.Method.from_names(
        {"sampler": names, **chosen}, {**knobs, **({"drafter": settings} if drafter else {})}
    )


@cache
def alone(sampler: str, length: int) -> dict:
    return exact_distribution(V5, method(None, sampler), [1, 2, 1, 3], length)


@pytest.mark.parametrize("sampler, length", LAWS)
@pytest.mark.parametrize("kind", KINDS)
def test_law_is_the_targets_by_counting_every_outcome(kind: str, sampler: str, length: int) -> None:
    found = exact_distribution(V5, method(kind, sampler, **SMALL[kind]), [1, 2, 1, 3], length)
    due = alone(sampler, length)
    assert len(due) >= 8 and sum(found.values()) == pytest.approx(1, abs=1e-12)
    assert found == pytest.approx(due, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_laws_compared_need_the_rule(kind: str) -> None:
    """In sampled runs some drafted tokens are kept and some refused, so that the counting above used both cases."""
    steps = [
        step
        for seed in range(20)
        for step in toys.decode(
            method(kind, "top-k 2", **SMALL[kind]), [1, 2, 1, 3], 8, seed=seed, pair=(V5, V5)
        ).sink.steps
    ]
    kept = sum(step.accepted for step in steps)
    assert 10 < kept < sum(step.drafted for step in steps) - 10


@pytest.mark.parametrize("kind", KINDS)
def test_notes_of_the_trace_agree_with_its_trees(kind: str) -> None:
    for sampler in ("greedy", "temperature"):
        trace = toys.decode(toys.method(drafter=(kind, toys.SETTINGS[kind][0]), sampler=sampler)).sink
        assert check(trace).ok
        for step in trace.steps:
            if step.draft is None:
                continue
            notes, n = step.draft.notes, len(step.draft.tokens)
            assert len(notes["sure" if kind == "kangaroo" else "ranks"]) == n
            for i, rank in enumerate(notes.get("ranks", ())):
                parent = step.draft.parents[i]
                assert rank == sum(step.draft.parents[j] == parent for j in range(i)), (
                    "siblings stand by rank"
                )
            if "scores" in notes:
                for i, score in enumerate(notes["scores"]):
                    parent = step.draft.parents[i]
                    assert score <= (0 if parent < 0 else notes["scores"][parent])


@pytest.mark.parametrize("kind", KINDS)
def test_model_without_heads_is_refused_with_the_command_that_trains_them(kind: str) -> None:
    bare = toys.model(toys.decoder(toys.toy_spec(heads=())))
    net = {"eagle2": "eagle"}.get(kind, kind)
    with pytest.raises(
        MethodError,
        match=rf"^toy has no heads/{net}: train them with decodescope train head {net} --model toy --prompts FILE, or ",
    ):
        Session(bare, toys.method(drafter=kind), toys.PROMPT)


def test_feature_is_what_the_unembedding_reads() -> None:
    """The one meaning of a feature: the last layer's output after the final norm."""
    target, _ = toys.pair()
    session = Session(target, toys.method(drafter="medusa"), toys.PROMPT)
    session.start()
    feature = session.target.probe.hidden["final"]
    fresh = target.decoder.forward(Feed.causal_chain(toys.PROMPT[:-1], 0), None)
    assert torch.allclose(target.decoder.unembed(feature), fresh, atol=1e-12)
