"""SVD of KV heads: with all directions it is the model, fewer lose what lies along the others, and bytes are halved."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import toys

from decodescope.engine.core.component import build
from decodescope.engine.core.spec import Rope
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.kernels.choice import kernels_in_use
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.attention.attention import upcast_half
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.rope import unrotate
from decodescope.engine.model.stores.cache import PAGE
from decodescope.engine.session.method import MethodError

TEXT = toys.prompts(1, 48, seed=2)[0]
DECODER = toys.pair()[0].decoder
# layers with a window rotate their keys by another base, as Gemma 3's do
TURNED = toys.toy_spec(windows=(9, None, 30), local_rope=Rope(50.0, DECODER.spec.rope.dim))
LOCAL = toys.decoder(TURNED, toys.LIVELY, torch.float64)


def lane(decoder: Decoder = DECODER, **knobs) -> Lane:
    return Lane(
        "target",
        decoder,
        KeepAll(),
        kv_compression=build("kv_compression", "head_svd", dict(buffer=16, **knobs)),
    )


@torch.inference_mode()
def test_all_directions_are_the_model() -> None:
    whole, plain = lane(direction_share=1.0, min_entries=32), lane(min_entries=60_000)
    for made in (whole, plain):
        made.read(TEXT)
    feed = Feed.causal_chain([5, 7, 1], len(TEXT))
    a, b = (made.forward(feed) for made in (whole, plain))
    assert whole.cache.layers[0].packed_entries == 48 and plain.cache.layers[0].packed_entries == 0
    assert torch.allclose(a, b, atol=1e-10) and whole.cache.layers[0].is_segmented
    half = lane(min_entries=32)
    half.read(TEXT)
    assert not torch.allclose(half.forward(feed), b, atol=1e-3), "half of the directions are another model"


@pytest.mark.parametrize("decoder", [DECODER, LOCAL], ids=["one rotation", "by layer"])
@torch.inference_mode()
def test_error_is_what_lies_along_the_directions_that_are_left_out(decoder: Decoder) -> None:
    made, plain = lane(decoder, min_entries=48), lane(decoder, min_entries=60_000)
    for one in (made, plain):
        one.read(TEXT)
    for layer, store in enumerate(made.cache.layers):
        other, table = plain.cache.layers[layer], plain.decoder.rope_of(layer)
        places = torch.arange(48)
        for side, (x, y) in {"keys": (other.k, store.k), "values": (other.v, store.v)}.items():
            if side == "keys":
                x, y = (unrotate(z, table, places, 47) for z in (x, y))
            # both heads of a token as one vector
            rows, back = (upcast_half(z[0].transpose(0, 1).flatten(1)) for z in (x, y))
            lost = torch.linalg.svdvals(rows)[8:].square().sum()
            assert torch.allclose((rows - back).square().sum(), lost) and lost > 1e-3, (
                "no 8 of 16 directions lose less"
            )


@torch.inference_mode()
def test_two_heads_take_what_one_took_and_directions_count_once() -> None:
    made = lane(min_entries=48)
    made.read(TEXT)
    wide, store = 8, made.cache.layers[0]
    halved = 2 * 48 * 8 * wide  # keys and values of 48 entries in 8 of 16 directions
    assert sum(block.nbytes for block in store.blocks) == halved + 48 * 4, "and the positions of keys"
    bases, page = 2 * 16 * 8 * wide, 2 * 2 * 8 * wide * PAGE
    assert store.nbytes() - bases - halved - 48 * 4 == page, "a page of whole entries"
    for token in TEXT[:20]:
        made.forward(Feed.causal_chain([token], len(made.tokens)))
        made.commit([0])
    assert store.packed_entries == 64 and len(store.blocks) == 1 and store.n == 68


def test_directions_wait_for_enough_entries_and_heads_that_do_not_divide_are_refused() -> None:
    plain, late = (
        toys.decode(toys.method(**x)) for x in ({}, {"kv_compression": ("head_svd", dict(min_entries=60))})
    )
    assert plain.tokens == late.tokens and late.target.cache.layers[0].packed_entries == 0
    early = toys.decode(toys.method(kv_compression=("head_svd", dict(min_entries=20, buffer=8))))
    assert early.tokens != plain.tokens and early.target.cache.layers[0].packed_entries == 48, (
        "the test needs a model that it moves"
    )
    with pytest.raises(
        MethodError,
        match=r"^head_svd\.heads_per_group = 3 does not divide the 2 KV heads of toy: set it to 1, 2\.$",
    ):
        toys.method(kv_compression=("head_svd", dict(heads_per_group=3))).check(toys.SPEC)


@torch.inference_mode()
def test_a_pass_asks_the_device_for_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    made = lane(min_entries=32)
    made.read(TEXT)
    feed = Feed.causal_chain([5, 7, 1], len(TEXT))
    asked: list[str] = []

    def counted(name: str) -> Any:
        usual = getattr(torch.Tensor, name)
        return lambda x: asked.append(name) or usual(x)  # type: ignore[func-returns-value] # records the call

    ways = ("item", "tolist", "__int__", "__index__", "__bool__", "__float__")
    for name in ways:
        monkeypatch.setattr(torch.Tensor, name, counted(name))
    number = made.cache.layers[0].blocks[0].parts["keys"]["at"][0, -1]
    for ask in (torch.Tensor.item, torch.Tensor.tolist, int, operator.index, bool, float):
        ask(number)
    assert asked == list(ways), "each is seen"
    made.decoder.forward(feed, made.cache)
    assert made.cache.layers[0].packed_entries and asked == list(ways), "no more than those of this test"


@torch.inference_mode()
def test_layers_that_rotate_alike_share_one_table() -> None:
    """A long text would else hold as many tables as layers, and no byte of them is counted."""
    for decoder, count in ((DECODER, 1), (LOCAL, 2)):
        made = lane(decoder, min_entries=32)
        made.read(TEXT)
        tables = {id(store.coder.table): store.coder.table for store in made.cache.layers}
        assert len(tables) == count and all(len(x._table) >= len(TEXT) for x in tables.values())


@pytest.mark.parametrize("share", [0.3, 0.75])
@torch.inference_mode()
def test_the_kernels_sum_values_of_any_number_of_directions(share: float) -> None:
    """In float32 attention is computed by kernels, which take values as wide as queries; double precision needs none."""
    single = toys.decoder(DECODER.spec, toys.LIVELY, torch.float32)
    logits = []
    for decoder in (DECODER, single):
        made = lane(decoder, direction_share=share, min_entries=32)
        made.read(TEXT)
        assert made.cache.layers[0].is_segmented
        logits.append(made.forward(Feed.causal_chain([5, 7, 1], len(TEXT))).double())
    assert kernels_in_use() == "rows"
    assert torch.allclose(*logits, atol=1e-4)
