"""Recorder: distributions sum to one, caches are accounted for, and every recorded figure can be derived again."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
import toys
from counting import TorchCalls
from sizes import thinned

from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.record import recorder
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.trace import check

DRAFTING = [part for part in toys.variants("drafter") if part[0] != "none"]
CHAINS = [
    part for part in toys.representatives("drafter") if part[0] in ("draft_model", "layer_skip", "kangaroo")
]
SAMPLERS = [
    "greedy",
    ("temperature", {"temperature": 0.9}),
    ("top_p", {"p": 0.7}),
    ("mirostat", {"target_surprise": 2.0}),
]


@pytest.mark.parametrize(
    "drafter, sampler",
    thinned(8, DRAFTING, SAMPLERS),
    ids=lambda part: part if isinstance(part, str) else "-".join(map(str, [part[0], *part[1].values()])),
)
def test_laws_and_what_is_left_of_them_add_up(drafter, sampler) -> None:
    trace = toys.decode(toys.method(drafter=drafter, sampler=sampler), count=30, seed=8).sink
    proposed = 0
    for step in trace.steps:
        tops, known = step.tops, step.tops.ids >= 0
        p, q = (np.where(known, x, 0) for x in (tops.p, tops.q))
        assert np.allclose(p.sum(1) + tops.rest[:, 0], 1, atol=1e-5)
        total_q = q.sum(1) + tops.rest[:, 1]
        assert np.all(np.isclose(total_q, 1, atol=1e-5) | (total_q == 0))
        excess = np.maximum(p - q, 0).sum(1) + tops.rest[:, 2]  # sum max(0, p - q) = 1 - sum min(p, q)
        overlap = np.minimum(p, q).sum(1) + tops.rest[:, 0] - tops.rest[:, 2]
        assert np.allclose(excess + overlap, 1, atol=1e-5)
        assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in tops.ids), "no token stands twice"
        proposed += int((total_q > 0).sum())
        for node in [] if step.trials is None else step.trials.node:
            row = tops.places.tolist().index(step.draft.parents[node])
            assert step.draft.tokens[node] in tops.ids[row], "what was tried is shown"
    kinds = {step.draft.proposal for step in trace.steps if step.draft}
    assert (proposed > 0) == (sampler != "greedy" and kinds != {"onehot"})


@pytest.mark.parametrize(
    ("policy", "level"),
    thinned(3, toys.variants("policy"), ["summary", "decisions", "full"]),
    ids=lambda x: x if isinstance(x, str) else "-".join(map(str, [x[0], *x[1].values()])),
)
def test_cache_is_accounted_for_at_every_level(policy, level: str) -> None:
    session = toys.decode(toys.method(policy=policy, drafter="prompt_lookup"), count=30, level=level)
    changes = [session.sink.prefill.cache[0], *(step.cache[0] for step in session.sink.steps)]
    held = np.zeros((3, 2), int)
    for change in changes:
        now = np.full((3, 2), change.held) if change.by_head is None else change.by_head
        lost = held + change.appended - now
        assert lost.min() >= 0 and lost.max() == change.evicted_count and change.held_bytes > 0
        if level != "summary" and change.evicted_count:
            listed = 0 if change.evicted_all is None else 6 * len(change.evicted_all)
            assert listed + (0 if change.evicted is None else len(change.evicted)) == lost.sum()
        held = now
    assert sum(change.appended for change in changes) == len(session.tokens) - 1
    assert changes[-1].full_bytes == session.target.decoder.spec.kv_bytes(len(session.tokens) - 1, 8)
    assert check(session.sink).ok


@pytest.mark.parametrize(("acceptance", "drafter"), list(product(["lossless", "typical", "block"], CHAINS)))
def test_sampled_traces_are_derived_again(acceptance: str, drafter) -> None:
    for seed in range(3):
        parts = dict(acceptance=acceptance, drafter=drafter, sampler=("temperature", {"temperature": 1.0}))
        report = check(toys.decode(toys.method(**parts), count=40, seed=seed).sink)
        assert report.ok and report.counts["trials"] > 10 and report.counts["distributions"], str(report)


@pytest.mark.parametrize("layers", [None, [1]])
def test_fields_hold_what_committed_rows_saw(layers: list[int] | None) -> None:
    for policy in ("keep_all", ("h2o", {"heavy": 4, "recent": 4})):
        parts = dict(drafter=("token_recycling", {"nodes": "8"}), policy=policy)
        session = toys.decode(toys.method(**parts), count=20, level="full", layers=layers)
        assert session.header.levels == ["summary", "decisions", "full"]
        for step in session.sink.steps:
            f, rows = step.fields, len(step.emitted)
            assert f.layers == (layers or [0, 1, 2]), (
                "what nobody asked for is not recorded, whatever the policy sees"
            )
            assert (
                f.attention.shape[:4] == (len(f.layers), 2, 2, rows)
                and f.positions.shape[2] == f.attention.shape[4]
            )
            assert np.allclose(f.attention.astype(float).sum(-1), 1, atol=5e-3)
            assert f.hidden_norm.shape == (toys.SPEC.n_layers + 1, rows) and (f.hidden_norm > 0).all()
            seen = (
                f.positions[:, :, None, None, :] > (step.n - 1 + np.arange(rows))[None, None, None, :, None]
            )
            assert not (f.attention * seen).any(), "no row looks ahead"
        mass = session.sink.steps[-1].cache[0].mass
        assert (mass is None) == (policy == "keep_all")
        if mass is not None:
            store = session.target.cache.layers[2]
            assert (
                sorted(np.flatnonzero(mass[2, 1])) == sorted(store.positions()[0, 1].tolist())
                and mass.max() == 255
            )


def test_passes_carry_times_and_what_was_instrumented() -> None:
    for level, marked in (("decisions", None), ("full", True)):
        step = toys.decode(toys.method(drafter="draft_model"), count=10, level=level).sink.steps[0]
        assert all(p.wall_us > 0 for p in step.passes)
        assert {p.instrumented for p in step.passes if p.lane == "target"} == {marked}
        assert step.wall_us >= step.draft_us + step.verify_us > 0


def test_near_ties_of_a_greedy_choice_are_marked() -> None:
    plain = toys.decoder(seed=toys.LIVELY)
    head = plain.head.clone()
    head[5] = head[9] + 1e-6
    even = Decoder(plain.spec, plain.embed, plain.layers, plain.norm, head)
    steps = toys.decode(count=60, pair=(toys.model(even), toys.draft())).sink.steps
    chosen = [step for step in steps if step.emitted[0] in (5, 9)]
    assert chosen and all(step.tie and step.tie[0][1] < 1e-3 for step in chosen)
    assert not any(step.tie for step in toys.decode(count=60).sink.steps)


def test_evictions_are_logged_from_the_prompt_on() -> None:
    session = toys.decode(toys.method(policy=("window", {"window": 6})), count=5)
    assert session.sink.prefill.cache[0].evicted_all.tolist() == list(range(len(toys.PROMPT) - 1 - 6))
    assert [step.cache[0].evicted_all.tolist() for step in session.sink.steps] == [[p] for p in range(8, 13)]
    assert isinstance(session.target, Lane) and torch.is_tensor(session.target.cache.layers[0].positions())


def test_fields_keep_as_many_layers_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are kept from the first on. What does not fit is left out; the norms stay."""
    n = len(toys.PROMPT)
    # room for two layers of four query heads, up to the third step
    monkeypatch.setattr(recorder, "ATTENTION", 2 * 4 * (n + 2))
    steps = toys.decode(count=8, level="full").sink.steps
    assert [step.fields.layers for step in steps[:3]] == [[0, 1]] * 3 and steps[4].fields.layers == [0]
    assert all(step.fields.attention.size <= recorder.ATTENTION for step in steps)
    monkeypatch.setattr(recorder, "ATTENTION", 4)
    fields = toys.decode(count=3, level="full").sink.steps[0].fields
    assert fields.attention is fields.layers is fields.positions is None and fields.hidden_norm.size


def test_the_mass_that_a_policy_keeps_is_recorded_with_decisions_and_thinned_above_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def masses(level: str, policy: object) -> list[np.ndarray | None]:
        return [
            step.cache[0].mass
            for step in toys.decode(toys.method(policy=policy), count=12, level=level).sink.steps
        ]

    h2o = ("h2o", {"heavy": 4, "recent": 4})
    few, all_ = masses("decisions", h2o), masses("full", h2o)
    assert all(np.array_equal(a, b) for a, b in zip(few, all_, strict=True)) and few[-1].shape == (
        3,
        2,
        len(toys.PROMPT) + 11,
    )
    assert masses("summary", h2o) == masses("decisions", "keep_all") == [None] * 12
    monkeypatch.setitem(recorder.MASS, "decisions", few[4].size)
    assert [x is None for x in masses("decisions", h2o)] == [i > 4 for i in range(12)]
    changes = [
        step.cache[0] for step in toys.decode(toys.method(policy=h2o), count=12, level="decisions").sink.steps
    ]
    assert [x.thinned_mass is None for x in changes] == [i <= 4 for i in range(12)], (
        "above the size a thinned map takes its place"
    )
    for change, whole in zip(changes[5:], few[5:], strict=True):
        found = change.thinned_mass.whole(whole > 0)
        assert found.shape == whole.shape and ((found > 0) == (whole > 0)).all()
        exact = np.take_along_axis(whole, np.maximum(change.thinned_mass.heavy, 0), 2)
        assert (change.thinned_mass.shares == exact * (change.thinned_mass.heavy >= 0)).all()


@pytest.mark.parametrize("layers", [[], [3], [-1], [0, 7]])
def test_layers_that_the_target_has_not_are_refused(layers: list[int]) -> None:
    with pytest.raises(ParamError, match="0 to 2"):
        toys.decode(count=3, level="full", layers=layers)


@pytest.mark.parametrize(
    ("drafter", "sampler", "most"),
    [
        ("none", "greedy", 11),
        ("draft_model", "greedy", 22),
        ("draft_model", ("temperature", {"temperature": 0.9}), 38),
    ],
)
def test_recording_decisions_takes_few_calls_of_torch(
    drafter, sampler, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[TorchCalls] = []
    plain = recorder.Recorder.step

    def counted(*args):
        calls.append(TorchCalls())
        with calls[-1]:
            return plain(*args)

    monkeypatch.setattr(recorder.Recorder, "step", counted)
    steps = toys.decode(toys.method(drafter=drafter, sampler=sampler), count=16, seed=8).sink.steps
    assert len(steps) == len(calls) and all(step.tops is not None for step in steps)
    assert any(step.draft is not None for step in steps) == (drafter != "none")
    assert max(x.count for x in calls) <= most, max(calls, key=lambda x: x.count).of
