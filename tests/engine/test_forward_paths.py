"""The paths of a forward pass: which one is taken, that all give the same bits, and which kernel a layer gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import toys
from shapes import FAMILIES, shaped
from torch import Tensor

from decodescope.engine.core.component import build
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.attention import dispatch
from decodescope.engine.model.forward import conditional, general, plain
from decodescope.engine.model.forward.batched import PassRequest, forward_batched
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import AttentionSinks, Feed
from decodescope.engine.model.layers.partial_pass import Block, ExecutedLayers, Skip
from decodescope.engine.model.stores.cache import KVCache

TEXT = [*toys.PROMPT, 7, 0, 11, 2, 2, 9, 10, 4]
TREE = Draft([1, 2, 3, 4, 5, 6], [ROOT, ROOT, 0, 1, 1, 4])


class Everything:
    """A rule that never leaves, closes no block and lets every row run."""

    whole = False
    routes = True
    gap = "propagate"

    def rows(self, layer: int, block: Block, x: Tensor, probe: Probe | None) -> Tensor | None:
        return torch.ones(x.shape[1], dtype=torch.bool) if block == "attn" else None

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        return False

    def gate(self, layer: int, before: Tensor, after: Tensor) -> tuple[int, ...]:
        return ()


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the paths that passes take, in order."""
    taken: list[str] = []

    def watch(owner: Any, name: str) -> None:
        run = owner.run
        monkeypatch.setattr(owner, "run", lambda *args: taken.append(name) or run(*args))

    watch(plain, "plain")
    watch(general, "general")
    watch(conditional.ConditionalPass, "conditional")
    return taken


# what makes a pass of a plain feed take each path; made again for each pass
ASKED: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "general": lambda: dict(ran=ExecutedLayers()),
    "conditional": lambda: dict(skip=Skip()),
    "conditional, by a rule": lambda: dict(depth=Everything()),
}


@dataclass
class Stage:
    """A pass of a text that continues, and its committed rows. decoding: whether it may be plain."""

    name: str
    feed: Feed
    keeps: list[int]
    decoding: bool = True


def stages() -> list[Stage]:
    n = len(TEXT)
    one = Feed.causal_chain([3], n)
    tree = TREE.build_feed(8, n + 1)  # the root 8, then six nodes
    return [
        Stage("prefill", Feed.causal_chain(TEXT, 0, logits="last"), [*range(n)], decoding=False),
        Stage("one row", one, [0]),
        Stage("a tree", tree, [0, 2, 5]),
        Stage("a chain behind commits", Feed.causal_chain([5, 6, 7], n + 4), [0, 1]),
        Stage("one row behind commits", Feed.causal_chain([9], n + 6, logits=[0]), [0]),
        Stage("two pending rows", Feed.causal_chain([4, 5], n + 7), []),
        Stage("a row behind pending ones", Feed.causal_chain([6], n + 9), []),
    ]


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_all_ways_give_the_same_bits(family: str, ways: list[str]) -> None:
    make, is_plain = FAMILIES[family]
    decoder, causal = make(), make().spec.causal
    caches = {way: KVCache(decoder.spec, dtype=decoder.dtype) for way in ASKED}
    for stage in stages():
        if not causal and "pending" in stage.name:  # such a model feeds all that see each other in one pass
            continue
        logits = dict[str, Tensor]()
        for way, cache in caches.items():
            ways.clear()
            logits[way] = decoder.forward(stage.feed, cache, **ASKED[way]())
            due = "general" if way == "plain" and not (is_plain and stage.decoding) else way.split(",")[0]
            assert ways == [due], stage.name
        for way, cache in caches.items():
            assert torch.equal(logits[way], logits["general"]), (stage.name, way)
            for a, b in zip(cache.layers, caches["general"].layers, strict=True):
                assert (a.n, a.m) == (b.n, b.m) and torch.equal(a.k, b.k) and torch.equal(a.v, b.v), (
                    stage.name,
                    way,
                )
        if stage.keeps:
            for cache in caches.values():
                cache.commit(stage.keeps)
    assert logits["general"].isfinite().all()


@torch.inference_mode()
def test_the_bits_of_two_families_differ() -> None:
    """The guard: the special feature of each family changes its logits."""
    feed, seen = Feed.causal_chain(TEXT, 0), list[Tensor]()
    for name, (make, _) in FAMILIES.items():
        logits = make().forward(feed, None).float()
        same = any(torch.equal(logits, other) for other in seen)
        assert not same or name in {"llama, packed", "multi-head"}, name
        seen.append(logits)


@pytest.mark.parametrize(
    "needs", [Needs("rows", hidden=frozenset({0, 2, "final"})), Needs("columns", queries=4)]
)
@torch.inference_mode()
def test_probes_see_the_same_bits_on_both_ways_that_have_them(needs: Needs, ways: list[str]) -> None:
    decoder = shaped(windows=(None, 9, None))
    both, probes = [KVCache(decoder.spec), KVCache(decoder.spec)], list[Probe]()
    for stage in stages()[:3]:
        probes = [Probe(needs), Probe(needs)]
        for cache, probe, more in zip(both, probes, ({}, dict(skip=Skip())), strict=True):
            decoder.forward(stage.feed, cache, probe, **more)
            cache.commit(stage.keeps)
        for table in ("rows", "columns", "hidden", "queries"):
            a, b = (getattr(probe, table) for probe in probes)
            assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a), table
    assert ways == ["general", "conditional"] * 3
    assert probes[0].rows, "rows are kept behind the prefill"


# what a pass has to do -> the path that it takes; the feed continues after TEXT
LONG = [1] * (plain.FEW + 1)
WAYS: dict[str, tuple[str, Callable[[Feed], Feed], dict[str, Any]]] = {
    "nothing": ("plain", lambda feed: feed, {}),
    "some rows' logits": ("plain", lambda feed: replace(feed, logits=[0]), {}),
    "many rows": ("general", lambda feed: Feed.causal_chain(LONG, len(TEXT)), {}),
    "what ran": ("general", lambda feed: feed, dict(ran=ExecutedLayers())),
    "attention": ("general", lambda feed: feed, dict(probe=Probe(Needs("rows")))),
    "sinks": ("general", lambda feed: replace(feed, sinks=AttentionSinks(2)), {}),
    "vectors": (
        "general",
        lambda feed: replace(feed, embeds=torch.ones(1, 1, 32), embed_rows=torch.tensor([True])),
        {},
    ),
    "upper layers": ("general", lambda feed: replace(feed, enter=1, states=torch.ones(1, 1, 32)), {}),
    "a skip": ("conditional", lambda feed: feed, dict(skip=Skip(ffn=frozenset({1})))),
    "a rule": ("conditional", lambda feed: feed, dict(depth=Everything())),
    "late rows": (
        "conditional",
        lambda feed: replace(
            Feed.causal_chain([3, 4], len(TEXT)), enter=1, entries=[2, 1], states=torch.ones(1, 2, 32)
        ),
        {},
    ),
}


@pytest.mark.parametrize("asked", WAYS)
@torch.inference_mode()
def test_what_is_asked_of_a_pass_says_its_way(asked: str, ways: list[str]) -> None:
    decoder = shaped()
    way, changed, more = WAYS[asked]
    cache = KVCache(decoder.spec)
    decoder.forward(Feed.causal_chain(TEXT, 0), cache)
    cache.commit(range(len(TEXT)))
    ways.clear()
    decoder.forward(changed(Feed.causal_chain([3], len(TEXT))), cache, **more)
    assert ways == [way]


@torch.inference_mode()
def test_a_lane_of_a_plain_method_decodes_plainly(ways: list[str]) -> None:
    lane = Lane("target", shaped(), build("policy", "keep_all"))
    lane.read(TEXT)
    for k in range(5):
        lane.forward(Feed.causal_chain([k], len(TEXT) + k))
        lane.commit([0])
    lane.forward(TREE.build_feed(8, len(TEXT) + 5))
    assert ways == ["general", *["plain"] * 6]


@torch.inference_mode()
def test_general_passes_and_others_record_what_ran_alike() -> None:
    decoder, feed = shaped(), Feed.causal_chain([3, 4], len(TEXT))
    told = []
    for more in ({}, dict(skip=Skip())):
        cache, ran = KVCache(decoder.spec), ExecutedLayers()
        decoder.forward(Feed.causal_chain(TEXT, 0), cache)
        cache.commit(range(len(TEXT)))
        decoder.forward(feed, cache, ran=ran, **more)
        told.append(ran)
    assert told[0] == told[1] and told[0].attn == told[0].ffn == [0, 1, 2] and told[0].fed == 2


@pytest.mark.parametrize("family", ["llama", "gemma3", "cut heads"])
@torch.inference_mode()
def test_shallow_and_queries_are_the_bits_of_a_whole_pass(family: str, ways: list[str]) -> None:
    decoder = FAMILIES[family][0]()
    spec, feed = decoder.spec, Feed.causal_chain(TEXT, 0)
    whole, probe = KVCache(spec), Probe(Needs(hidden=frozenset(range(3)), queries=len(TEXT)))
    decoder.forward(replace(feed, logits="last"), whole, probe)
    for layer in (0, 1, 2):
        below, own = KVCache(spec), KVCache(spec)
        assert torch.equal(decoder.states_before(feed, below, layer), probe.hidden[layer])
        assert [store.m for store in below.layers] == [len(TEXT) * (i < layer) for i in range(3)]
        if not spec.kv_at(layer):
            continue
        queries = decoder.queries(feed, own, layer)
        assert [store.m for store in own.layers] == [len(TEXT) * (i <= layer) for i in range(3)]
        for i in range(layer + 1):
            assert torch.equal(
                own.layers[i].kv[:, :, :, : len(TEXT)], whole.layers[i].kv[:, :, :, : len(TEXT)]
            )
        if spec.uneven_at(layer) is None:
            by_group = probe.queries[layer].permute(0, 3, 1, 2, 4).flatten(2, 3)
            assert torch.equal(queries, by_group)
    assert set(ways) == {"general"}
    # the upper layers, from the states of the lower ones
    low = KVCache(spec)
    states = decoder.states_before(feed, low, 1)
    on = decoder.forward(replace(feed, enter=1, states=states), low)
    assert torch.equal(on, decoder.forward(feed, KVCache(spec)))


# parts with special stores, and the kernel that their decoding steps need, perhaps in addition to the usual one
KERNELS: dict[str, tuple[dict[str, Any], str]] = {
    "sinks that moved": (dict(policy=("streaming_llm", dict(sink_tokens=2, recent=6))), "attend_segments"),
    "sinks with a middle": (
        dict(
            policy=(
                "lm_infinite",
                dict(sink_tokens=2, window=6, middle_top_k=2, middle_distance=4, first_middle_layer=1),
            )
        ),
        "attend_segments",
    ),
    "chosen entries": (dict(policy=("quest", dict(token_budget=16, dense_layers=1))), "attend_segments"),
    "a packed store": (dict(kv_compression=("kivi", dict(group=4, buffer=4))), "attend_segments"),
    "a state beside the text": (dict(prompt_compression="ntk_attention"), "attend_segments"),
    "a prefix": (dict(drafter="bita"), "attend_segments"),
    "heads of unlike lengths": (
        dict(policy=("duo_attention", dict(streaming_share=0.5, sink_tokens=2, recent=6))),
        "attention_by_head",
    ),
    "weights that a policy sees": (dict(policy=("h2o", dict(heavy=4, recent=4))), "eager_attention"),
}


@pytest.mark.parametrize("what", KERNELS)
def test_special_stores_give_the_same_bits_on_both_ways_that_have_them(
    what: str, monkeypatch: pytest.MonkeyPatch, ways: list[str]
) -> None:
    parts, due = KERNELS[what]
    method, forward = toys.method(**parts), Decoder.forward
    runs: dict[str, list[Tensor]] = {}
    kernels = kernels_of(monkeypatch)
    for way in ("general", "conditional"):

        def by(
            self: Decoder, feed: Feed, cache: Any, probe: Any = None, *rest: Any, way: str = way
        ) -> Tensor:
            skip, depth, ran = rest or (None, None, None)
            assert skip is depth is None
            more = dict(ran=ran or ExecutedLayers()) if way == "general" else dict(skip=Skip(), ran=ran)
            logits = forward(self, feed, cache, probe, **more)  # type: ignore[arg-type] # by name
            if feed.logits != "last":
                runs[way].append(logits.clone())
            else:
                kernels.clear()  # count only those after the prompt
            return logits

        monkeypatch.setattr(Decoder, "forward", by)
        runs[way] = []
        ways.clear()
        session = toys.decode(method, toys.prompts(1, 40, seed=4)[0], count=12)
        assert set(ways) == {way} and len(session.tokens) > 40
        assert due in kernels and set(kernels) <= {due, "fused_attention"}
    assert len(runs["general"]) == len(runs["conditional"]) > 4
    assert all(torch.equal(a, b) for a, b in zip(runs["general"], runs["conditional"], strict=True))


def kernels_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the kernels that the dispatch chooses, in order."""
    chosen: list[str] = []

    def watch(name: str) -> None:
        run = getattr(dispatch, name)
        monkeypatch.setattr(dispatch, name, lambda *args, **more: chosen.append(name) or run(*args, **more))

    for name in (
        "attend_segments",
        "attention_by_head",
        "attention_by_group_size",
        "eager_attention",
        "fused_attention",
        "causal_attention",
    ):
        watch(name)
    return chosen


@pytest.mark.parametrize(
    ("family", "prefill", "one"),
    [
        ("llama", "causal_attention", "fused_attention"),
        ("mistral", "fused_attention", "fused_attention"),
        ("reads both sides", "fused_attention", "fused_attention"),
        ("gemma2", "eager_attention", "eager_attention"),
        ("cut heads", "attention_by_group_size", "attention_by_group_size"),
    ],
)
@torch.inference_mode()
def test_a_layer_gets_the_kernel_of_its_shape(
    family: str, prefill: str, one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, kernels = FAMILIES[family][0](), kernels_of(monkeypatch)
    cache = KVCache(decoder.spec)
    decoder.forward(Feed.causal_chain(TEXT, 0), cache)
    cache.commit(range(len(TEXT)))
    first, _ = kernels[:], kernels.clear()
    decoder.forward(Feed.causal_chain([3], len(TEXT)), cache, ran=ExecutedLayers())
    assert set(first) == {prefill} or (family == "cut heads" and set(first) <= {prefill, "causal_attention"})
    assert set(kernels) == {one} or (family == "cut heads" and set(kernels) <= {one, "fused_attention"})


def test_the_output_of_the_last_layer_can_be_asked_for_on_every_way() -> None:
    """As the input of the layer behind it: its final norm is the feature. Passes run as one, and prompts read in parts, too."""
    decoder, needs = toys.decoder(), Needs(hidden=frozenset({toys.SPEC.n_layers, "final"}))
    last: dict[str, Tensor] = {}
    for name, asked in ASKED.items():
        probe = Probe(needs)
        decoder.forward(Feed.causal_chain(TEXT, 0), None, probe, **asked())
        last[name] = probe.hidden[toys.SPEC.n_layers]
        assert torch.equal(decoder.apply_norm(last[name]), probe.hidden["final"]), name
    together = [Probe(needs), Probe(needs)]
    forward_batched([PassRequest(decoder, Feed.causal_chain(TEXT, 0), None, x) for x in together])
    last |= {f"batched {i}": x.hidden[toys.SPEC.n_layers] for i, x in enumerate(together)}
    assert all(torch.allclose(x, last["general"], atol=1e-5) for x in last.values())
