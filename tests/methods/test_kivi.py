"""KIVI: groups of keys along a channel, groups of values along a token, and the largest error of an entry."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.kv_compression.shared.groups import (
    dequantise,
    pack_bits,
    quantise,
    unpack_bits,
)
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import PAGE
from decodescope.engine.session.method import MethodError


@pytest.mark.parametrize("bits", [2, 4])
def test_words_hold_their_codes(bits: int) -> None:
    codes = torch.randint(
        0, 1 << bits, (3, 2, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    words = pack_bits(codes, bits)
    assert words.dtype is torch.uint8 and words.shape == (3, 2, 24 * bits // 8)
    assert torch.equal(unpack_bits(words, bits), codes)


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_no_number_is_further_off_than_half_a_step(bits: int, dtype: torch.dtype) -> None:
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64).mul(3).to(dtype)
    x[0, :16] = 1.7  # a constant group
    parts = quantise(x, 16, bits)
    low, high = x.double().unflatten(1, (4, 16)).aminmax(dim=2)
    steps = ((high - low) / (2**bits - 1)).repeat_interleave(16, 1)
    error = (dequantise(parts, 16).double() - x.double()).abs()
    rounding = 2 * torch.finfo(dtype).eps * x.double().abs().max()
    assert bool((error <= steps / 2 + rounding).all()) and float((error - 0.4 * steps).max()) > 0, (
        "and some nearly as far"
    )
    assert torch.equal(dequantise(parts, 16)[0, :16], x[0, :16])


def test_keys_are_grouped_by_channel_and_values_by_token() -> None:
    """A channel that is large for all tokens costs the others nothing; a large token costs them nothing, either."""
    kivi = build("kv_compression", "kivi", dict(group=4, buffer=8))
    x = torch.rand(1, 2, 8, 8, generator=torch.Generator().manual_seed(2))
    keys, values = x.clone(), x.clone()
    keys[..., 3] *= 1000
    values[:, :, 5] *= 1000
    rest = [0, 1, 2, 4, 5, 6, 7]

    def error(x: torch.Tensor, side: str) -> torch.Tensor:
        return (kivi.decode(kivi.encode(x, side), side) - x).abs()

    assert error(keys, "keys")[..., rest].max() < 0.17 < 0.5 < error(keys, "values")[..., :3].max()
    rest = [0, 1, 2, 3, 4, 6, 7]
    assert error(values, "values")[:, :, rest].max() < 0.17 < 0.5 < error(values, "keys")[:, :, 6:].max()


@pytest.mark.parametrize("bits", [2, 4])
@torch.inference_mode()
def test_bytes_are_measured_and_the_residual_is_what_is_left_over(bits: int) -> None:
    kivi = build("kv_compression", "kivi", dict(bits=str(bits), group=4, buffer=8))
    made = Lane("target", toys.pair()[0].decoder, KeepAll(), kv_compression=kivi)
    made.read(toys.PROMPT * 40)  # 600 tokens
    wide = 8  # bytes of a number: the toy is in float64
    for token in [*toys.PROMPT, None]:
        n, store = len(made.tokens), made.cache.layers[0]
        assert (store.n, store.packed_entries, store.n - store.packed_entries) == (n, n - n % 8, n % 8)
        numbers = 2 * 2 * store.packed_entries * 8  # keys and values of two heads with 8 channels
        packed = sum(x.nbytes for x in store.blocks)
        assert (
            packed
            == numbers * bits // 8 + numbers // 4 * 2 * wide
            == numbers * kivi.mean_stored_bits(toys.SPEC, 64) / 8
        )
        assert store.nbytes() - packed == 2 * 2 * 8 * wide * PAGE, "a page of whole entries"
        if token is not None:
            made.forward(Feed.causal_chain([token], n))
            made.commit([0])
    assert len(store.blocks) == 2, "blocks of up to 512"


@pytest.mark.parametrize("drafter", ["none", ("token_recycling", {"nodes": "16"})], ids=["alone", "tree"])
def test_with_a_residual_as_long_as_the_text_nothing_changes(drafter: str | tuple) -> None:
    plain, kivi = (
        toys.decode(toys.method(drafter=drafter, **x))
        for x in ({}, {"kv_compression": ("kivi", dict(buffer=64))})
    )
    assert plain.tokens == kivi.tokens and all(step.cache[0].packed is None for step in kivi.sink.steps)
    other = toys.decode(toys.method(drafter=drafter, kv_compression=("kivi", dict(group=4, buffer=4))))
    assert other.tokens != plain.tokens, "the test needs a model that two bits move"


def test_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        MethodError, match=r"^kivi packs whole .* buffer = 40 is no multiple of group = 32; set it to 32\.$"
    ):
        toys.method(kv_compression=("kivi", dict(buffer=40))).check(toys.SPEC)


WIDTHS = [*range(2, 34), 48, 63, 80, 96, 112, 130]


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("group", [4, 32, 128])
def test_heads_of_any_width_are_packed_and_no_number_is_further_off_than_half_a_step(
    bits: int, group: int
) -> None:
    """The last group of a token may be smaller; no byte of a block is filled in vain."""
    size = max(8, group)
    kivi = build("kv_compression", "kivi", dict(bits=str(bits), group=group, buffer=size))
    for width in WIDTHS:
        x = torch.randn(2, 3, size, width, generator=torch.Generator().manual_seed(width))
        block = {side: kivi.encode(x, side) for side in ("keys", "values")}
        for side, parts in block.items():
            error = (kivi.decode(parts, side) - x).abs()
            steps = parts["scale"].repeat_interleave(group, -1)
            steps = steps.mT[:, :, :size] if side == "keys" else steps[..., :width]
            assert bool((error <= steps / 2 + 1e-6).all()), (width, side)
            joined = kivi.concat_parts(parts, parts, side)
            assert torch.equal(kivi.decode(joined, side), torch.cat([kivi.decode(parts, side)] * 2, 2))
        spec = toys.toy_spec(head_dim=width, n_kv_heads=3)
        stored = sum(x.nbytes for parts in block.values() for x in parts.values())
        assert stored * 8 == 2 * kivi.block_bits(spec, 0, 32, size)
