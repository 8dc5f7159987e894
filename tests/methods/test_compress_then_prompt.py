"""Compress, then prompt: the soft tokens come before the text, whole; when off, they do not exist."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys

from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.method import Method, MethodError

OFF = ("compress_then_prompt", {"use_soft_tokens": False})
CODEC = ("kivi", toys.SETTINGS["kivi"][0])


def test_off_the_run_is_plain_bit_for_bit() -> None:
    """With prompt and KV compression off, the run is the base. With only the prompt off, it is KV compression alone."""
    for parts in ({}, {"kv_compression": CODEC}):
        base, off = (
            toys.decode(toys.method(**parts), count=24),
            toys.decode(toys.method(prompt_compression=OFF, **parts), count=24),
        )
        assert off.tokens == base.tokens and off.target.cache.nbytes == base.target.cache.nbytes
        for a, b in zip(off.target.cache.layers, base.target.cache.layers, strict=True):
            assert torch.equal(a.k, b.k) and torch.equal(a.v, b.v)
    assert (
        toys.decode(Method(), count=24).tokens
        == toys.decode(toys.method(prompt_compression=OFF), count=24).tokens
    )


@torch.inference_mode()
def test_the_soft_tokens_are_the_first_inputs_of_one_pass_over_everything() -> None:
    """A run's next logits equal those of one pass, without a cache, over the soft embeddings and the text."""
    run = toys.decode(toys.method(prompt_compression="compress_then_prompt"), count=20)
    decoder = run.target.decoder
    soft = decoder.heads["compress_then_prompt"].embeds
    text = run.tokens[:-1]
    rows = torch.cat([soft, decoder.embed[text]])
    feed = Feed.causal_chain([0] * len(rows), 0)
    feed.embeds, feed.embed_rows = rows[None], torch.ones(len(rows), dtype=torch.bool)
    due = decoder.forward(feed, None)[0, len(soft) :]
    written = due[run.prompt - 1 :].argmax(-1).tolist()
    assert written == run.tokens[run.prompt :], "greedy, so each token is the likeliest of that pass"
    assert run.target.cache.length == len(text) and run.target.cache.extra_entries == len(soft)


def test_they_stay_whole_under_a_codec_and_a_policy() -> None:
    for parts in ({"kv_compression": CODEC}, {"policy": ("h2o", {"heavy": 4, "recent": 4})}):
        run = toys.decode(toys.method(prompt_compression="compress_then_prompt", **parts), count=30)
        plain = toys.decode(toys.method(**parts), count=30)
        assert run.end.reason == "max_new_tokens", run.end.message
        kept = run.target.cache.outside[0]
        assert kept.entries == 3 and all(x.dtype == run.target.decoder.dtype for x in kept.tensors)
        assert [x.lengths for x in run.target.cache.layers] == [x.lengths for x in plain.target.cache.layers]
        assert run.tokens != plain.tokens, "they say something"


def test_a_model_without_them_is_refused_with_the_command_that_trains_them() -> None:
    big, _ = toys.pair()
    with pytest.raises(MethodError, match=r"training\.cacheparts compress_then_prompt --within 10"):
        toys.method(prompt_compression="compress_then_prompt").check(replace(big.spec, heads=()))
