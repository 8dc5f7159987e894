"""The cost model against what torch counts while passes run, and against the storages that they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import counted
import pytest
import torch
import toys
from counted import Counted, Priced

from decodescope.engine.cost.cost import PassShape, pass_cost
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.kernels.choice import kernels_set_to
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.stores.packed_store import PackedStore
from decodescope.engine.model.stores.store import LayerStore
from decodescope.engine.session.load import bits_of
from decodescope.engine.session.session import Session
from decodescope.engine.trace.records.events import Pass

CASES = {
    "plain": {},
    "chain of a draft model": dict(drafter=("draft_model", dict(max_draft_tokens=3))),
    "tree of heads": dict(drafter=("medusa", dict(nodes=8))),
    "tree of a draft model": dict(drafter=("rsd_c", dict(branching="3,2,1"))),
    "skipped layers": dict(drafter=("layer_skip", dict(skip_ratio=0.5, min_probability=0.0))),
    "early exit, then the rest": dict(drafter=("early_exit", dict(max_draft_tokens=4, layers=1))),
    "exits of different depth": dict(
        drafter=("s2d", dict(max_draft_tokens=3, exits=[1, 2], thresholds=[0.4], heads="exits"))
    ),
    "exits asked by the head": dict(adaptive_depth=("confidence_exit", dict(threshold=0.6, min_layers=1))),
    "rows that choose": dict(adaptive_depth=("skip_layer", dict(threshold=0.4))),
    "states that wait for the rest": dict(
        adaptive_depth=("free", dict(threshold=0.05, min_layers=1, max_pending=2))
    ),
    "evicted": dict(policy=("h2o", dict(heavy=4, recent=4))),
    "evicted by head": dict(policy=("adakv", dict(prompt_budget=5, window=3, pool_radius=1))),
    "packed cache": dict(kv_compression=("kivi", dict(group=4, buffer=4))),
    "merged layers": dict(kv_compression=("minicache", dict(buffer=4))),
    "outliers": dict(kv_compression=("gear", dict(group=4, buffer=8, sparsity=0.1, rank=0, decode_rank=0))),
    "several sequences": dict(strategy=("samples", dict(samples=3))),
}
# with these, rows of a pass see less than a chain does, because no record has their tree
UNTOLD = {"tree of a draft model": "draft"}


@pytest.fixture(autouse=True)
def torch_computes() -> Iterator[None]:
    """What is counted are torch's operators."""
    with kernels_set_to("torch"):
        yield


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_pass_costs_what_torch_counts(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", 6)
    ran = counted.counting(monkeypatch)
    session = toys.decode(toys.method(**CASES[case]), count=9)
    agree(counted.compared(session, ran), UNTOLD.get(case))


def agree(both: list[tuple[Counted, Priced]], untold: str | None = None, whole: bool = False) -> None:
    """Check that passes were counted as they were priced.

    Passes of phase `untold` may have fewer pairs than priced. whole: kernels read more than is charged, and the pairs under
    their masks are still as many.
    """
    assert len(both) > 5, "the test needs passes"
    for mine, due in both:
        assert due.products == mine.products, mine.record
        assert (
            due.scores < mine.scores if whole and mine.record.max_entries > 6 else due.scores <= mine.scores
        ), mine.record
        assert whole or due.scores == mine.scores, mine.record
        if mine.pairs is not None:
            assert due.pairs >= mine.pairs if mine.record.phase == untold else due.pairs == mine.pairs, (
                mine.record
            )


SHAPES = {
    "windows": dict(windows=(None, 6, 4)),
    "a KV head for each query head": dict(n_kv_heads=4),
    "one KV head": dict(n_kv_heads=1),
    "soft caps": dict(attn_cap=20.0, logit_cap=9.0),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_so_does_one_of_another_shape(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = toys.model(toys.decoder(toys.toy_spec(heads=(), **SHAPES[shape]), 3))
    ran = counted.counting(monkeypatch)
    session = Session(
        target,
        toys.method(drafter=("prompt_lookup", dict(max_draft_tokens=4, ngram=1))),
        toys.PROMPT,
        max_new_tokens=12,
    )
    both = counted.compared(toys.finish_session(session), ran)
    agree(both, whole=shape == "windows")
    assert any(mine.record.tokens > 1 and mine.record.held for mine, _ in both), (
        "the test needs checks of drafts"
    )


@pytest.mark.parametrize(
    "weights", ["", "int8", "int4 group=32", "cut_layers skip=a1,f0", "head_subset kept_heads=7, steps=2"]
)
def test_so_does_one_whose_weights_were_changed(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed_weights_agree(weights, monkeypatch)


@pytest.mark.parametrize("weights", ["", "head_subset kept_heads=7, steps=2"])
def test_so_does_one_on_a_processor_that_packs_no_bfloat16(
    weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without AVX-512, a matrix in bfloat16 stays in rows. Its products are other operators, at the same cost."""
    monkeypatch.setattr("decodescope.engine.model.layers.matrix.can_pack", lambda dtype, device: False)
    decoder = changed_weights_agree(weights, monkeypatch)
    assert not decoder.unembedding.is_mkldnn and not decoder.layers[0].qkv.is_mkldnn
    assert decoder.norm.dim() == 2, "the test needs norms that leave rows apart in memory"


def changed_weights_agree(weights: str, monkeypatch: pytest.MonkeyPatch) -> Decoder:
    """Count and price a run of a bfloat16 model with these `weights`; return its decoder."""
    made = toys.decoder(dtype=torch.bfloat16)
    decoder = (toys.transformed_decoder(weights, made) if weights else made).pack_weights()
    ran = counted.counting(monkeypatch)
    agree(
        counted.compared(
            toys.finish_session(Session(toys.model(decoder), toys.method(), toys.PROMPT, max_new_tokens=8)),
            ran,
        )
    )
    return decoder


WEIGHTS = [
    "",
    "int8",
    "int8 include_lm_head=True",
    "int4 group=32",
    "codes bits=3",
    "sparse_nm",
    "cut_layers skip=a1,f0",
    "head_subset kept_heads=7, steps=2",
    "width_gates cut_share=0.4, columns_per_gate=8, steps=2",
]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_pass_reads_the_storages_of_its_matrices(weights: str) -> None:
    made = toys.decoder(dtype=torch.bfloat16)
    decoder = toys.transformed_decoder(weights, made) if weights else made
    spec = replace(decoder.spec, bits=bits_of(decoder))
    matrices = [
        getattr(layer, name) for layer in decoder.layers for name in ("qkv", "out", "gate_up", "down")
    ]
    stored = sum(x.nbytes for x in matrices) + decoder.unembedding.nbytes
    assert (
        pass_cost(spec, PassShape(1, 9)).weight_bytes
        == pass_cost(spec, PassShape(5, 9, logits=5)).weight_bytes
        == stored
    )
    whole = 2 * (3 * ((4 + 2 + 2) * 8 * 32 + 32 * 32 + 3 * 32 * 64) + 13 * 32)  # by hand: two bytes a number
    assert stored == whole if not weights else stored < whole


def test_a_tied_head_is_read_as_any_other_and_the_rows_of_the_embedding_are_not() -> None:
    own = toys.decoder()
    tied = Decoder(toys.toy_spec(tied=True), own.embed, own.layers, own.norm, own.embed)
    assert tied.unembedding is tied.embed and tied.spec.params < own.spec.params
    assert pass_cost(tied.spec, PassShape(1, 9)) == pass_cost(own.spec, PassShape(1, 9))
    head = (
        pass_cost(tied.spec, PassShape(1, 9)).weight_bytes
        - pass_cost(tied.spec, PassShape(1, 9, logits=0)).weight_bytes
    )
    assert 2 * head == tied.embed.nbytes == 13 * 32 * 4  # priced at two bytes per number, stored in four


CACHES = {
    "whole": {},
    "evicted": dict(policy=("h2o", dict(heavy=4, recent=4))),
    "evicted by layer": dict(policy=("pyramidkv", dict(prompt_budget=5, window=3))),
    "evicted by head": dict(policy=("adakv", dict(prompt_budget=5, window=3, pool_radius=1))),
    "merged": dict(policy=("d2o", dict(heavy=5, recent=4, sink_tokens=2))),
    "two bits": dict(kv_compression=("kivi", dict(group=4, buffer=4))),
    "four bits and a remainder": dict(kv_compression=("kivi", dict(bits="4", group=4, buffer=8))),
    "exact outliers": dict(
        kv_compression=("gear", dict(group=4, buffer=8, sparsity=0.0, rank=0, decode_rank=0))
    ),
    "other axes": dict(kv_compression=("head_svd", dict(min_entries=12, buffer=5, direction_share=0.4))),
}


@pytest.mark.parametrize("case", CACHES)
def test_a_pass_reads_the_entries_that_its_cache_stores_and_writes_one(case: str) -> None:
    session = toys.finish_session(
        Session(toys.target(), toys.method(**CACHES[case]), toys.PROMPT, max_new_tokens=24)
    )
    layers = session.target.cache.layers
    cost = PassPricer(session.sink.header).cost(
        Pass("target", "verify", 1, session.target.cache.lengths(), 1.0)
    )
    entry = 2 * 2 * 8 * 4  # by hand: keys and values of two heads of width 8 in four bytes
    assert cost.kv_write_bytes == 3 * entry
    stored = sum(_stored(store) for store in layers)
    assert 0 <= cost.kv_read_bytes - cost.kv_write_bytes - stored <= len(layers), (
        "each layer may be rounded up"
    )
    whole = 3 * entry * len(session.target.tokens)
    assert stored == whole if case == "whole" else stored < whole


# What is kept exactly, and at low rank, is a share of a block, rounded up. The price is that of the short blocks after the
# prompt.
SHARES = {
    "merged layers": dict(kv_compression=("minicache", dict(buffer=4))),
    "low rank": dict(kv_compression=("gear", dict(group=4, buffer=4, sparsity=0.1, rank=2, decode_rank=2))),
}


@pytest.mark.parametrize("case", SHARES)
def test_the_prompts_longer_blocks_take_less_than_is_priced_and_not_much_less(case: str) -> None:
    session = toys.finish_session(
        Session(toys.target(), toys.method(**SHARES[case]), toys.PROMPT, max_new_tokens=24)
    )
    cost = PassPricer(session.sink.header).cost(
        Pass("target", "verify", 1, session.target.cache.lengths(), 1.0)
    )
    stored = sum(_stored(store) for store in session.target.cache.layers)
    assert stored < cost.kv_read_bytes - cost.kv_write_bytes < 1.12 * stored


def test_what_a_codec_computes_to_unpack_is_in_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each read, GEAR multiplies two thin matrices per head, for keys and for values."""
    ran = counted.counting(monkeypatch)
    session = toys.decode(toys.method(**SHARES["low rank"]), count=9)
    rank, width, heads, layers = 2, 8, 2, 3
    for mine, due in counted.compared(session, ran)[2:]:  # after the prompt, which is read in two passes
        unpacked = mine.record.held // 4 * 4
        assert due.products == mine.products
        assert mine.scores - due.scores == layers * 2 * heads * 2 * unpacked * rank * width, mine.record


def _stored(store: LayerStore) -> int:
    """Bytes of a layer's committed entries, including those that it reads from another layer."""
    if isinstance(store, PackedStore):
        lent = [
            parts[name].nbytes
            for block in store.blocks
            for parts in block.parts.values()
            for name in block.lent
        ]
        return store.committed_bytes + sum(lent)
    if store.heads is not None:
        return sum(store.heads.head(0, h, 0).nbytes for h in range(2))
    return store.k.nbytes + store.v.nbytes
