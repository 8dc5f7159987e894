"""The requirements for KV compression: the prompt is read exactly, the cache then equals the unpacked numbers, none pending."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import toys
from sizes import by_turns
from toys import feed_tokens

from decodescope.engine.core.component import build, registry
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import PAGE
from decodescope.engine.session.method import MethodError
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.session.session import Session
from decodescope.engine.trace import Trace, check

CODECS = toys.variants("kv_compression")
PACKING = [(name, settings) for name, settings in CODECS if build("kv_compression", name, settings).does]
TREE = ("token_recycling", {"nodes": "16"})
TEXT = toys.prompts(1, 40, seed=8)[0]


def lane(name: str, settings: dict, **more) -> Lane:
    made = Lane(
        "target",
        toys.pair()[0].decoder,
        KeepAll(),
        kv_compression=build("kv_compression", name, settings),
        **more,
    )
    made.log_evictions()
    return made


def held(made: Lane) -> list[torch.Tensor]:
    """Keys and values of every layer, as attention reads them."""
    return [x for store in made.cache.layers for x in (store.k, store.v)]


def alike(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(x.shape == y.shape and torch.allclose(x, y, atol=1e-9) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("name", "settings"), CODECS)
@torch.inference_mode()
def test_prompt_is_read_exactly_and_then_the_cache_is_what_was_unpacked(name: str, settings: dict) -> None:
    """Passes over packed entries equal those of a cache that holds the same numbers in full precision."""
    packed, plain = lane(name, settings), lane("unpacked", {})
    assert torch.equal(*(made.read(toys.PROMPT, compress=False) for made in (packed, plain)))
    lossy = 0
    for token in TEXT:
        logits = [feed_tokens(made, token) for made in (packed, plain)]
        assert torch.allclose(*logits, atol=1e-9)
        for a, b in zip(packed.cache.layers, plain.cache.layers, strict=True):
            assert a.n == b.n == len(packed.tokens) and a.m == 0
            lossy += not torch.allclose(a.k, b.k, atol=1e-6)
            b.kv[:, :, :, : b.n] = torch.stack([a.k, a.v])
    assert bool(lossy) is bool(packed.kv_compression.does), "the test needs entries that changed"


@pytest.mark.parametrize(("name", "settings"), by_turns(2, CODECS))
@pytest.mark.parametrize(
    "drafter", [("prompt_lookup", {"max_draft_tokens": 4, "ngram": 1}), TREE], ids=["chain", "tree"]
)
def test_rejected_nodes_are_never_packed(name: str, settings: dict, drafter: tuple) -> None:
    """Block semantics: the text equals that of single-token passes that pack at the same commits."""
    target, _ = toys.pair()
    session = Session(
        target, toys.method(kv_compression=(name, settings), drafter=drafter), toys.PROMPT, max_new_tokens=40
    )
    session.start()
    alone = lane(name, settings)
    alone.read(toys.PROMPT[:-1], compress=False)
    rejected = several = 0
    while not session.is_done:
        before = len(session.target.tokens)
        step = session.step()
        rejected, several = rejected + step.drafted - step.accepted, several + (step.accepted > 0)
        with torch.inference_mode():
            for token in (new := session.target.tokens[before:]):
                logits = alone.forward(Feed.causal_chain([token], len(alone.tokens)))
                alone.commit([0], compress=token is None)
                assert int(logits[0, 0].argmax()) == session.tokens[len(alone.tokens)]
            alone.kv_compression.pack(alone.cache)
        assert new and alike(held(session.target), held(alone))
    assert rejected > 20 and several, "the test needs rejections, and blocks of several tokens"


@pytest.mark.parametrize(("name", "settings"), PACKING)
@torch.inference_mode()
def test_going_back_reordering_and_copying_keep_what_is_packed(name: str, settings: dict) -> None:
    made = lane(name, settings)
    made.read(toys.PROMPT * 2)
    before = held(made)
    with made.cache.rewind(9, 4):
        made.forward(Feed.causal_chain([1, 2, 3], 9))
        assert made.cache.layers[0].k.shape[2] == 12
    made.forward(Feed.causal_chain([1, 2, 3], len(made.tokens)))
    made.rollback()
    assert alike(held(made), before)
    for length in (29, 22, 3):
        twin = deepcopy(made)
        twin.truncate(length)
        assert alike(held(twin), [x[:, :, :length] for x in before]) and {x.n for x in twin.cache.layers} == {
            length
        }
        feed_tokens(twin, 4)
        assert twin.tokens == [*made.tokens[:length], 4]
    assert alike(held(made), before), "a copy shares nothing"
    made.cache.reorder(torch.tensor([0, 0]))
    made.forward(Feed(torch.tensor([[5], [6]]), torch.full((2, 1), len(made.tokens))))
    made.commit([0])
    made.cache.reorder(torch.tensor([1]))
    assert alike([x[:, :, : len(made.tokens) - 1] for x in held(made)], before)


@pytest.mark.parametrize(("name", "settings"), by_turns(2, PACKING))
def test_a_run_that_packs_is_forked_and_told(name: str, settings: dict) -> None:
    """The trace records which positions were packed: each once, in the order of the text, and no further than the text."""
    parts = dict(kv_compression=(name, settings), drafter=TREE)
    run = toys.decode(toys.method(**parts))
    trace, stop = run.sink, 0
    for change in [trace.prefill.cache[0], *(step.cache[0] for step in trace.steps)]:
        if change.packed is not None:
            assert change.packed.first == stop < change.packed.stop <= change.held
            assert change.packed.bytes > 0 and min(change.packed.key_error, change.packed.value_error) >= 0
            stop = change.packed.stop
    stores, words, entry = (
        run.target.cache.layers,
        trace.header.parts["kv_compression"],
        2 * 2 * 8 * 8,
    )  # bytes of an entry in a layer
    n, kept = stores[0].n, sum(block.nbytes for store in stores for block in store.blocks)
    assert (
        {store.packed_entries for store in stores} <= {stop, 0}
        and stop > len(toys.PROMPT)
        and check(trace).ok
    )
    assert trace.steps[-1].cache[0].kept_bytes(n) == kept + sum(
        entry * (n - store.packed_entries) for store in stores
    )
    # KV compression may leave a layer unchanged
    packed = kept + sum(entry * (stop - store.packed_entries) for store in stores)
    assert words["whole"] > n - stop and 0.8 < words["bits"] / 64 * 3 * entry * stop / packed < 1.2
    read = [PassPricer(trace.header).cost(x) for x in (trace.prefill.passes[0], trace.steps[-1].passes[-1])]
    full = [
        PassPricer(replace(trace.header, parts={})).cost(x)
        for x in (trace.prefill.passes[0], trace.steps[-1].passes[-1])
    ]
    assert read[0] == full[0] and read[1].flops == full[1].flops
    less = words.get("reads", words["bits"]) < 64
    assert (read[1].kv_read_bytes < full[1].kv_read_bytes) is less, "scales may take more than they save"
    plain = toys.decode(toys.method(drafter=TREE))
    again = Fork(toys.pair()[0], run.header, list(trace.steps), 5)
    later = Fork(toys.pair()[0], plain.header, list(plain.sink.steps), 5, method=toys.method(**parts))
    for fork in (again, later):
        fork.sink = Trace()
        for _ in fork.stream():
            pass
        assert check(fork.sink).ok
    assert again.tokens == run.tokens and not later.header.lossless


@pytest.mark.parametrize(("name", "settings"), PACKING)
@pytest.mark.parametrize("policy", [x for x in registry("policy") if build("policy", x).does])
def test_codec_that_packs_refuses_a_policy_that_takes_entries_out(
    name: str, settings: dict, policy: str
) -> None:
    with pytest.raises(
        MethodError,
        match=rf"^{name} packs entries together, and {policy} would .* kv_compression unpacked\.$",
    ):
        toys.method(kv_compression=(name, settings), policy=policy).check(toys.SPEC)


@pytest.mark.parametrize(("name", "settings"), CODECS)
def test_codec_says_what_it_does(name: str, settings: dict) -> None:
    method = toys.method(kv_compression=(name, settings))
    assert method.lossless is method.kv_compression.lossless is (not method.kv_compression.does)
    assert method.describe_parts()["kv_compression"]["does"] == sorted(method.kv_compression.does)
    for strategy in registry("strategy").values():
        assert ("kv_compression" in strategy.uses) is ("policy" in strategy.uses), (
            "both are of the target's own cache"
        )


@pytest.mark.parametrize(("name", "settings"), by_turns(2, CODECS))
@pytest.mark.parametrize(("prompt", "new"), [(120, 30), (20, 90)])
def test_room_is_what_a_run_takes(name: str, settings: dict, prompt: int, new: int) -> None:
    """Equal except for the spare room of growth by half, and for entries that exist twice during growth."""
    run = toys.decode(
        toys.method(kv_compression=(name, settings)), toys.prompts(1, prompt, seed=2)[0], count=new
    )
    spec, cache = run.target.decoder.spec, run.target.cache
    due = spec.kv_bytes(run.method.kv_compression.room(spec, 64, prompt, prompt + new), 8)
    assert 0.6 * due < cache.memory.peak < 1.6 * (due + spec.kv_bytes(PAGE, 8))
