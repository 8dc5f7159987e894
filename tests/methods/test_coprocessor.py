"""Cache coprocessor: latents are those of plain passes, they become entries without tokens, and 0 of them change nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys
from torch import Tensor

from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.session import Session

NAME = "coprocessor"


def read_vectors(decoder: Decoder, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Final features [T, d] and logits [T, V] of one pass, without a cache, over the inputs rows [T, d]."""
    feed = Feed.causal_chain([0] * len(rows), 0)
    feed.embeds, feed.embed_rows = rows[None], torch.ones(len(rows), dtype=torch.bool)
    states = decoder.states_before(feed, None, decoder.spec.n_layers)
    feature = decoder.apply_norm(states)[0]
    return feature, decoder.unembed(feature)


def decode_with(net: object, count: int = 12, **knobs: int) -> Session:
    """A run on a fresh toy with this coprocessor."""
    target = toys.model(toys.decoder(dtype=torch.float64))
    target.decoder.heads[NAME] = net
    run = Session(target, toys.method(prompt_compression=(NAME, knobs)), toys.PROMPT, max_new_tokens=count)
    while run.end is None:
        run.step()
    return run


def untrained() -> object:
    """A coprocessor whose low-rank changes are zero: the model itself."""
    net = toys.heads(NAME, 32, **sizes()).copy_to(dtype=torch.float64)
    with torch.no_grad():
        for name, x in net.named_parameters():
            if name.endswith("_b"):
                x.zero_()
    return net


def sizes() -> dict[str, int]:
    s = toys.SPEC
    return dict(
        n_layers=s.n_layers, n_heads=s.n_heads, n_kv_heads=s.n_kv_heads, head_dim=s.head_dim, d_ff=s.d_ff
    )


@torch.inference_mode()
def test_an_untrained_coprocessor_is_the_model_in_two_plain_passes() -> None:
    """The latents are the features behind the prompt and the soft tokens; the answer reads prompt, latents and last token."""
    net = untrained()
    run = decode_with(net)
    decoder, prompt = run.target.decoder, toys.PROMPT
    before = decoder.embed[prompt[:-1]]
    latents = read_vectors(decoder, torch.cat([before, net.embeds]))[0][-4:]
    written = run.tokens[run.prompt :]
    rows = torch.cat([before, latents, decoder.embed[[prompt[-1], *written[:-1]]]])
    due = read_vectors(decoder, rows)[1][-len(written) :].argmax(-1).tolist()
    assert written == due
    assert run.target.cache.length == len(prompt) + len(written) - 1 and run.target.cache.extra_entries == 4
    assert written != toys.decode(Method(), count=12).tokens[len(prompt) :], "they say something"


@torch.inference_mode()
def test_the_trained_copy_reads_the_frozen_models_cache() -> None:
    """Latents equal those of a dense copy, with W + B A in each matrix, that continues the frozen model's cache."""
    net = toys.heads(NAME, 32, **sizes()).copy_to(dtype=torch.float64)
    run = decode_with(net, count=1)
    decoder, places = run.target.decoder, len(toys.PROMPT) - 1
    cache = KVCache(decoder.spec, dtype=torch.float64)
    decoder.forward(Feed.causal_chain(toys.PROMPT[:-1], 0), cache)
    cache.commit(range(places))
    layers = [
        replace(x, **{n: getattr(x, n) + net.get_parameter(f"{n}_b")[i] @ net.get_parameter(f"{n}_a")[i]
                      for n in ("qkv", "out", "gate_up", "down")})
        for i, x in enumerate(decoder.layers)
    ]  # fmt: skip
    dense = Decoder(decoder.spec, decoder.embed, layers, decoder.norm, decoder.head)
    feed = Feed.causal_chain([0] * 4, places)
    feed.embeds, feed.embed_rows = net.embeds[None], torch.ones(4, dtype=torch.bool)
    due = dense.apply_norm(dense.states_before(feed, cache, decoder.spec.n_layers))[0]
    lane = Lane("target", decoder, KeepAll())
    lane.read(toys.PROMPT[:-1])
    (vectors,) = run.target.vectors
    mine = vectors.compute(lane)
    assert torch.allclose(mine, due, atol=1e-12) and lane.cache.layers[0].m == 0
    assert not torch.allclose(mine, decode_latents(untrained()), atol=1e-3), "the changes change something"


def decode_latents(net: object) -> Tensor:
    """The latents of the prompt by this coprocessor."""
    run = decode_with(net, count=1)
    lane = Lane("target", run.target.decoder, KeepAll())
    lane.read(toys.PROMPT[:-1])
    return run.target.vectors[0].compute(lane)


def test_without_latents_the_run_is_plain_bit_for_bit() -> None:
    off = toys.decode(toys.method(prompt_compression=(NAME, {"latent_tokens": 0})), count=16)
    plain = toys.decode(Method(), count=16)
    assert off.tokens == plain.tokens
    for a, b in zip(off.target.cache.layers, plain.target.cache.layers, strict=True):
        assert torch.equal(a.k, b.k) and torch.equal(a.v, b.v)


def test_fewer_latents_are_the_first_ones() -> None:
    """Soft token k sees only those before it; more than were trained are those that were."""
    entries = {}
    for count in (2, 4, 64):
        run = decode_with(untrained(), count=1, latent_tokens=count)
        entries[count] = run.target.cache.outside[0].kv
    assert [x[0].shape[3] for x in entries.values()] == [2, 4, 4]
    for few, all_, more in zip(*entries.values(), strict=True):
        assert torch.equal(all_, more) and torch.allclose(few, all_[:, :, :, :2], atol=1e-12)


def test_drafts_change_no_text_and_a_cut_model_is_refused() -> None:
    parts = dict(prompt_compression=NAME)
    plain = toys.decode(toys.method(**parts), count=16)
    drafted = toys.decode(toys.method(drafter="prompt_lookup", **parts), count=16)
    assert drafted.tokens == plain.tokens
    spec = replace(toys.SPEC, widths=(64, 32, 64), weights="width_gates")
    with pytest.raises(MethodError, match="width_gates cut some of toy"):
        toys.method(**parts).check(spec)
    with pytest.raises(MethodError, match=r"training\.cacheparts coprocessor --within 10"):
        toys.method(**parts).check(replace(toys.SPEC, heads=()))
