"""What is said of a cache's bytes before a run is what stores hold, on shapes of published models, without their memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import toys
from acting import method_with
from sizes import first_of, thinned

from decodescope.app.runs.memory import cache_bytes, tokens_held
from decodescope.engine.core.component import build, registry
from decodescope.engine.core.spec import ModelSpec, Rope
from decodescope.engine.decoding.bases.kv_compression import PackingCodec
from decodescope.engine.model.stores.cache import PAGE, KVCache
from decodescope.engine.session.method import MethodError
from decodescope.engine.session.session import Session
from decodescope.testing.contracts import memory

SHAPES = {
    "Llama-3.1-8B": dict(n_layers=32, n_heads=32, n_kv_heads=8, head_dim=128),
    "Qwen3-8B": dict(n_layers=36, n_heads=32, n_kv_heads=8, head_dim=128),
    "Gemma-2-9B": dict(n_layers=42, n_heads=16, n_kv_heads=8, head_dim=256),
    "Phi-3-mini": dict(n_layers=32, n_heads=32, n_kv_heads=32, head_dim=96),
}
BITS = 16
PACKING = [name for name in registry("kv_compression") if build("kv_compression", name).does]


def shape_of(name: str) -> ModelSpec:
    shape = SHAPES[name]
    return toys.toy_spec(
        **shape, max_positions=524_288, heads=(), rope=Rope(theta=5e5, dim=shape["head_dim"])
    )


def meta_cache(spec: ModelSpec, **more: Any) -> KVCache:
    return KVCache(spec, dtype=torch.bfloat16, device="meta", **more)


def read(cache: KVCache, count: int) -> None:
    """Enter `count` entries as a pass does."""
    at = torch.arange(cache.length, cache.length + count, device="meta")[None]
    for store in cache.layers:
        _, batch, heads, _, width = store.kv.shape
        store.append(torch.empty(2, batch, heads, count, width, dtype=store.kv.dtype, device="meta"), at)
    cache.commit(range(count))


def used_bytes(cache: KVCache) -> int:
    """What the cache reports, without free room in pages."""
    free = 0
    for store in cache.layers:
        whole = store.n - getattr(store, "packed_entries", 0)
        for table, axis in store._tables():
            free += table.nbytes // table.shape[axis] * (table.shape[axis] - whole)
    return cache.nbytes - free


def codec_holds_what_was_said(name: str, shape: str, prompt: int, layers: int | None = None) -> None:
    """layers: how many of them, None: all."""
    spec, codec = shape_of(shape), build("kv_compression", name)
    spec = replace(spec, n_layers=layers or spec.n_layers)
    assert isinstance(codec, PackingCodec)
    cache, size = meta_cache(spec, store=codec.store), codec.pack_size
    for at in range(0, prompt, 512):
        read(cache, min(512, prompt - at))
    assert cache.nbytes >= used_bytes(cache) == spec.kv_bytes(prompt, BITS // 8)
    most, before = 0, used_bytes(cache)
    for count in (0, size - prompt % size, size, 3):
        read(cache, count)
        whole = used_bytes(cache)
        held = [block for store in cache.layers for block in store.blocks]
        codec.pack(cache)
        fresh = sum(x.nbytes for store in cache.layers for x in store.blocks) - sum(x.nbytes for x in held)
        most = max(most, whole + fresh)
        cache.shrink()
        assert used_bytes(cache) == codec.held_bytes(spec, BITS, prompt, cache.length), cache.length
    assert used_bytes(cache) < before, "the test needs entries that were packed"
    memory.check_reported_bytes(cache, [getattr(store.coder, "table", None) for store in cache.layers])
    run = toys.method(kv_compression=name), prompt, cache.length - prompt, 0
    said = cache_bytes(spec, tokens_held(*run, "target", spec, BITS // 8), BITS // 8)
    slack = spec.kv_bytes(PAGE + size, BITS // 8) + sum(
        codec.fixed_bits(spec, i, 2) for i in range(spec.n_layers)
    )
    assert most <= said <= most + slack


@pytest.mark.parametrize(("name", "shape"), thinned(4, PACKING, SHAPES))
def test_a_kv_compression_holds_what_was_said_of_it(name: str, shape: str) -> None:
    codec_holds_what_was_said(name, shape, 1100, layers=3)


@pytest.mark.nightly
@pytest.mark.parametrize(("prompt", "layers"), [(8192, None), (131_072, 3)])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PACKING)
def test_a_kv_compression_of_long_texts_holds_what_was_said_of_it(
    name: str, shape: str, prompt: int, layers: int | None
) -> None:
    codec_holds_what_was_said(name, shape, prompt, layers)


@pytest.mark.parametrize("tokens", first_of(8192, 131_072))
@pytest.mark.parametrize(("name", "shape"), thinned(2, registry("policy"), SHAPES))
def test_a_policy_holds_what_was_said_of_it(name: str, shape: str, tokens: int) -> None:
    """With columns, with positions once something was evicted, and with bounds of pages."""
    spec = shape_of(shape)
    policy = build("policy", name, {"retrieval_heads": "0.0 2.0"} if name == "duo_attention" else {})
    policy.begin(spec, tokens)
    cache = meta_cache(spec, columns=policy.columns)
    read(cache, tokens)
    if "evict" in policy.does:
        for store in cache.layers:
            store.evict_same([5])
    for store in cache.layers[policy.dense_layers :] if name == "quest" else ():
        store.bounds()
    held = cache.layers[0].n
    assert used_bytes(cache) == policy.held_bytes(spec, BITS, held)
    memory.check_reported_bytes(cache)
    due = spec.kv_bytes(policy.room(spec, BITS, held), BITS // 8) - used_bytes(cache)
    assert 0 <= due < spec.kv_bytes(1, BITS // 8)


# every width of a head that a published model has, and those that fill no byte or no group
WIDTHS = [2, 3, 7, 18, 33, 48, 80, 96, 112, 130]
KNOBS: dict[str, list[dict[str, Any]]] = {
    "kivi": [dict(), dict(bits="4", group=128, buffer=128), dict(group=12, buffer=24)],
    "gear": [dict(), dict(bits="4", group=32, buffer=32), dict(group=12, buffer=24, outlier_order="first")],
    "head_svd": [dict(min_entries=8), dict(min_entries=8, direction_share=0.01)],
    "minicache": [dict(), dict(start_layer=0, buffer=1)],
}


def runs_or_its_advice_does(kind: str, name: str, knobs: dict[str, Any], width: int, kv_heads: int) -> None:
    """A run with heads of this width ends with all its tokens; where it is refused, one with what the refusal advises does."""
    spec = toys.toy_spec(head_dim=width, rope=Rope(dim=width // 2 * 2), n_kv_heads=kv_heads)
    model = toys.model(toys.decoder(spec, toys.LIVELY, torch.float32))
    prompt = toys.prompts(1, 140 if kind == "kv_compression" else 20, seed=1)[0]
    method = method_with((kind, name, knobs), warm=False)
    more = dict(models=dict.fromkeys(method.lanes, model), max_new_tokens=6)
    try:
        session = Session(model, method, prompt, **more)
    except MethodError as refusal:
        assert str(refusal).endswith("set it to 1."), refusal  # heads that are no whole groups
        method = method_with((kind, name, {**knobs, "heads_per_group": 1}), warm=False)
        session = Session(model, method, prompt, **more)
    toys.finish_session(session)
    assert session.end is not None and session.end.reason == "max_new_tokens", session.end
    memory.check_reported_bytes(session.target.cache, session.target.decoder)


@pytest.mark.parametrize(("name", "width"), thinned(2, PACKING, WIDTHS))
def test_a_kv_compression_takes_heads_of_any_width(name: str, width: int) -> None:
    runs_or_its_advice_does("kv_compression", name, KNOBS[name][0], width, 1)


@pytest.mark.parametrize(("name", "settings"), toys.representatives("policy"))
def test_a_policy_takes_heads_of_any_width(name: str, settings: dict[str, Any]) -> None:
    runs_or_its_advice_does("policy", name, settings, WIDTHS[len(name) % len(WIDTHS)], 1)


@pytest.mark.nightly
@pytest.mark.parametrize("width", range(2, 131))
def test_every_cache_takes_heads_of_every_width(width: int) -> None:
    for name in PACKING:
        for knobs in KNOBS[name]:
            for kv_heads in (1, 2):
                runs_or_its_advice_does("kv_compression", name, knobs, width, kv_heads)
    for name, settings in toys.representatives("policy"):
        runs_or_its_advice_does("policy", name, settings, width, 1)


@pytest.mark.parametrize("name", ["kivi", "gear"])
@pytest.mark.parametrize(("buffer", "group"), [(40, 32), (4, 128), (1000, 128), (36, 8)])
def test_a_buffer_that_is_no_whole_groups_is_refused_with_advice_that_works(
    name: str, buffer: int, group: int
) -> None:
    method = toys.method(kv_compression=(name, dict(buffer=buffer, group=group)))
    with pytest.raises(MethodError) as refusal:
        method.check(toys.SPEC)
    fits = int(str(refusal.value).removesuffix(".").rsplit(" ", 1)[1])
    toys.method(kv_compression=(name, dict(buffer=fits, group=group))).check(toys.SPEC)
