"""GemFilter: which tokens an early layer keeps, and that the first pass is freed before the second."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CHUNK
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace import check

LONG = toys.prompts(1, length=40, seed=7)[0]


def gem(**knobs: Any) -> Any:
    return toys.method(prompt_compression=("gemfilter", knobs))


@torch.no_grad()
def dense(model: Model, prompt: list[int], layer: int, kernel: int) -> torch.Tensor:
    """float [n]: the scores, by the whole text read at once, with every product of a head written out."""
    spec, decoder = model.spec, model.decoder
    lane = Lane("target", decoder, toys.Method().policy)
    queries = decoder.queries(Feed.causal_chain(prompt, 0), lane.cache, layer)[0]
    keys = lane.cache.layers[layer].k[0]
    total = torch.zeros(len(prompt), dtype=keys.dtype)
    for head in range(spec.n_heads):
        for j in range(len(prompt)):
            total[j] += queries[-1, head] @ keys[head // spec.group, j]
    around = [total[max(0, j - kernel // 2) : j + kernel // 2 + 1].sum() / kernel for j in range(len(prompt))]
    return torch.stack(around)


@pytest.mark.parametrize(("layer", "kernel"), [(1, 5), (2, 1), (0, 3)])
def test_the_kept_tokens_are_those_of_a_dense_recomputation(layer: int, kernel: int) -> None:
    session = toys.decode(gem(prompt_budget=9, layer=layer, kernel=kernel), prompt=LONG, count=6)
    cut, at = session.sink.prefill.cut, layer or 1  # the last layer of the lower half of three
    assert cut.layers == [at]
    due = dense(toys.pair()[0], LONG, at, kernel)
    assert torch.allclose(torch.from_numpy(cut.scores).double(), due, atol=1e-5)
    due[-1] = torch.inf
    assert cut.kept.tolist() == sorted(due.topk(9).indices.tolist()) and len(cut.kept) == 9 < len(LONG)
    assert cut.kept[-1] == len(LONG) - 1, "the last token is always read"


@torch.no_grad()
def test_scores_are_the_logs_of_the_attention_that_the_last_token_gives() -> None:
    """Equal up to a constant, which softmax subtracts.

    So in a whole pass layer r attends by the same numbers that it chose by.
    """
    model = toys.pair()[0]
    probe = Probe(Needs("rows"))
    model.decoder.forward(Feed.causal_chain(LONG, 0), None, probe)
    # [H_kv, g, n] -> [n]
    logs = (probe.rows[1][0, :, :, -1].double().log() / model.spec.score_scale).sum((0, 1))
    cut = toys.decode(gem(prompt_budget=9, layer=1, kernel=1), prompt=LONG, count=1).sink.prefill.cut
    assert (
        np.allclose(cut.scores - cut.scores[-1], (logs - logs[-1]).numpy(), atol=1e-4)
        and np.ptp(cut.scores) > 1
    )


def test_the_second_pass_reads_the_short_prompt_afresh() -> None:
    session = toys.decode(gem(prompt_budget=9), prompt=LONG, count=12)
    trace = session.sink
    short = [LONG[i] for i in trace.prefill.cut.kept]
    assert (
        trace.header.prompt.tolist() == session.given_prompt == LONG
        and trace.effective_prompt == short != LONG
    )
    alone = toys.decode(prompt=short, count=12)
    assert session.end.tokens == alone.end.tokens and toys.matches_fresh_reading(session.target)
    assert session.end.tokens != toys.decode(prompt=LONG, count=12).end.tokens, (
        "the test needs a cut that matters"
    )
    assert [step.n for step in trace.steps] == [9 + i for i in range(12)] and check(trace).ok, str(
        check(trace)
    )
    assert not session.header.lossless


def test_a_prompt_that_is_no_longer_is_read_as_it_is() -> None:
    plain = toys.decode(prompt=LONG, count=8, level="full")
    for keep in (len(LONG), 500):
        session = toys.decode(gem(prompt_budget=keep), prompt=LONG, count=8, level="full")
        assert session.sink.prefill.cut is None and not [
            x for x in session.sink.prefill.passes if x.phase == "score"
        ]
        assert [x.fields.logits.tolist() for x in session.sink.steps] == [
            x.fields.logits.tolist() for x in plain.sink.steps
        ]


def test_the_first_pass_is_gone_before_the_second_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storages show that the first pass's keys are freed before the second begins; the peak is the larger of the two."""
    stores: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []
    skim, read = Lane.read_to_layer, Lane.read

    def spied(lane: Lane, *rest: Any) -> torch.Tensor:
        queries = skim(lane, *rest)
        stores.extend(weakref.ref(store.kv) for store in lane.cache.layers)
        return queries

    def watched(lane: Lane, *rest: Any, **more: Any) -> torch.Tensor:
        alive.append(sum(store() is not None for store in stores))
        return read(lane, *rest, **more)

    monkeypatch.setattr(Lane, "read_to_layer", spied)
    monkeypatch.setattr(Lane, "read", watched)
    prompt = toys.prompts(1, length=200, seed=3)[0]
    session = toys.decode(gem(prompt_budget=20), prompt=prompt, count=2)
    assert len(stores) == 3 and alive == [0]
    store = session.target.cache.layers[0]
    an_entry = store.kv.untyped_storage().nbytes() // store.capacity
    assert session.sink.prefill.cut.held_bytes == (2 * 208 + 16) * an_entry, (
        "two layers of the prompt in pages, one untouched"
    )
    assert session.target.cache.nbytes == 3 * 32 * an_entry


def test_a_long_prompt_is_looked_at_in_chunks_and_its_passes_are_recorded() -> None:
    big = toys.model(toys.decoder(toys.toy_spec(max_positions=4096), dtype=torch.float64, seed=3))
    prompt = toys.prompts(1, length=CHUNK + 88, seed=5)[0]
    session = Session(big, gem(prompt_budget=12), prompt, max_new_tokens=2)
    prefill = session.start()
    looked = [x for x in prefill.passes if x.phase == "score"]
    assert [(x.lane, x.tokens, x.held, x.attn, x.ffn, x.propagated) for x in looked] == [
        ("target", CHUNK, 0, 1, 1, 1),
        ("target", 88, CHUNK, 1, 1, 1),
    ]
    due = dense(big, prompt, 1, 5)
    due[-1] = torch.inf
    assert prefill.cut.kept.tolist() == sorted(due.topk(12).indices.tolist())
    assert [x.tokens for x in prefill.passes if x.phase == "prefill"] == [11]


def test_the_first_pass_is_priced_as_it_ran() -> None:
    """Some layers, keys and values of one more, and no logits."""
    session = toys.decode(gem(prompt_budget=9, layer=2), prompt=LONG, count=1)
    looked, read = (
        next(x for x in session.sink.prefill.passes if x.phase == phase) for phase in ("score", "prefill")
    )
    names = [[(op.layer, op.name) for op in ops_of(toys.SPEC, x)] for x in (looked, read)]
    assert (None, "lm_head") in names[1] and (None, "lm_head") not in names[0]
    assert {layer for layer, name in names[0] if name == names[1][-2][1]} == {0, 1}, (
        "the last of a layer's operators"
    )
    assert 0 < sum(layer == 2 for layer, _ in names[0]) < sum(layer == 2 for layer, _ in names[1])


def test_a_share_becomes_tokens_in_the_header() -> None:
    session = toys.decode(gem(budget_share=0.5), prompt=LONG, count=2)
    assert (
        session.header.method["prompt_compression"]["prompt_budget"]
        == 20
        == len(session.sink.prefill.cut.kept)
    )


def test_what_looks_in_the_text_looks_in_what_was_read() -> None:
    """A drafter copies from the tokens read, and a penalty counts in them. The verdict keeps the target's own text."""
    for parts in (
        {"drafter": ("prompt_lookup", {"max_draft_tokens": 4, "ngram": 1})},
        {"sampler": "repetition_penalty"},
    ):
        session = toys.decode(
            toys.method(prompt_compression=("gemfilter", {"prompt_budget": 9}), **parts),
            prompt=LONG,
            count=16,
        )
        alone = toys.decode(toys.method(**parts), prompt=session.sink.effective_prompt, count=16)
        assert session.end.tokens == alone.end.tokens and check(session.sink).ok
        assert [x.drafted for x in session.sink.steps] == [x.drafted for x in alone.sink.steps]


def test_a_fork_reads_the_prompt_as_its_run_did() -> None:
    run = toys.decode(gem(prompt_budget=9), prompt=LONG, count=12)
    big, steps = toys.pair()[0], list(run.sink.steps)
    same = Fork(big, run.header, steps, 5)
    assert [x for _ in same.stream() for x in _.emitted] == run.end.tokens
    other = toys.method(
        prompt_compression=("gemfilter", {"prompt_budget": 9}), policy=("window", {"window": 4})
    )
    changed = Fork(big, run.header, steps, 5, method=other)
    text = [x for step in changed.stream() for x in step.emitted]
    assert text[:5] == run.end.tokens[:5] and changed.prompt == 9 and len(text) == 12
    with pytest.raises(
        MethodError, match="its prompt compression stays gemfilter, as it was set: choose that one, or run"
    ):
        Fork(big, run.header, steps, 5, method=toys.method())


def test_a_branch_goes_on_from_what_was_read() -> None:
    session = Session(toys.pair()[0], gem(prompt_budget=9), LONG, max_new_tokens=12)
    for _ in range(4):
        session.step()
    twin = session.branch()
    texts = [[x for step in run.stream() for x in step.emitted] for run in (twin, session)]
    assert texts[0] == texts[1]
    assert twin.header.prompt.tolist() == session.tokens[: 9 + 4]


def test_what_cannot_be_is_refused() -> None:
    for knobs, said in (({"layer": 3}, "has the layers 0 to 2"), ({"kernel": 4}, "choose an odd number")):
        with pytest.raises(MethodError, match=said):
            Session(toys.pair()[0], gem(**knobs), LONG)
