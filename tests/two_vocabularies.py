"""Toy models with real tokenizers of a few tokens, which may differ between target and draft model."""

from __future__ import annotations

import json
from dataclasses import replace

import torch
import toys

from decodescope.engine import Session
from decodescope.engine.core.component import build
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.model.forward.decoder import Decoder, Layer
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method

MARK = "<end>"
# each with merges, a mark, and the bytes of "é"; the target has three tokens that the draft lacks, and the draft two
TARGET = ["a", "b", "c", "d", " ", "ab", " a", "cd", "<0xC3>", "<0xA9>", MARK, "abcd", " ab"]
DRAFT = ["b", "<0xA9>", "a", " ", "bc", "d", "<0xC3>", "c", "cd", MARK, " a", "dd"]
LETTERS = list("abcdefghijklm")
PROMPT = [0, 1, 4, 2, 3, 4, 0, 1, 2, 3, 4, 0]


def small_tokenizer(tokens: list[str]) -> Tokenizer:
    """A BPE over these tokens, in the order of their ids: a longer one is merged from two that are there."""
    merges = []
    for token in tokens:
        if token[0] != "<" and len(token) > 1:
            cut = next(i for i in range(1, len(token)) if {token[:i], token[i:]} <= {*tokens})
            merges.append([token[:cut], token[cut:]])
    mark = {
        "content": MARK,
        "special": True,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
    }
    table = {
        "version": "1.0",
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": merges,
            "byte_fallback": True,
        },
        "added_tokens": [{**mark, "id": tokens.index(MARK)}] if MARK in tokens else [],
    }
    return Tokenizer(json.dumps(table), {})


def toy_model(tokens: list[str], decoder: Decoder) -> Model:
    """A model with these tokens."""
    return replace(toys.model(decoder), tokenizer=small_tokenizer(tokens))


def reordered(base: Decoder, ids: list[int]) -> Decoder:
    """A decoder with the weights of `base` whose id i means that model's `ids[i]`."""
    layers = [Layer(a.attn_norm, a.qkv, a.out, a.mlp_norm, a.gate_up, a.down) for a in base.layers]
    spec = replace(base.spec, vocab=len(ids), name="draft")
    return Decoder(spec, base.embed[ids], layers, base.norm, base.head[ids])


def unequal_pair(seed: int = 0) -> tuple[Model, Model]:
    """A target and a draft model with the vocabularies TARGET and DRAFT; the draft is right now and then."""
    big = toys.decoder(seed=seed, dtype=torch.float64, sharp=2.0)
    near = toys.noisy_decoder(big, 0.1)
    ids = [TARGET.index(x) if x in TARGET else i for i, x in enumerate(DRAFT)]
    return toy_model(TARGET, big), toy_model(DRAFT, reordered(near, ids))


def letter_pair(order: list[int]) -> tuple[Model, Model]:
    """A target whose tokens are letters, and a draft model with the same letters whose id i is the target's `order[i]`."""
    big = toys.decoder(dtype=torch.float64, sharp=2.0)
    small = reordered(toys.noisy_decoder(big, 0.1), order)
    return toy_model(LETTERS, big), toy_model([LETTERS[i] for i in order], small)


def pair_session(
    pair: tuple[Model, Model],
    drafter: str,
    sampler: str = "greedy",
    prompt: list[int] = PROMPT,
    **knobs: object,
) -> Session:
    """A session that drafts with the second model of a pair."""
    method = Method(drafter=build("drafter", drafter, knobs), sampler=build("sampler", sampler, {}))  # type: ignore[arg-type]
    return Session(pair[0], method, prompt, models={"draft": pair[1]}, max_new_tokens=24, seed=3)
