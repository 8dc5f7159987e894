"""A decoder with hand-set weights that looks things up: a policy that keeps a pair answers, one that lost it does not.

One token says a pair, "key k has value v"; another asks for a key. The asking token's query matches the keys of the pairs, and
it reads the value: one layer, no rotation, nothing learnt. There are two KV heads: the first looks up, the second attends to
everything alike.
"""

from __future__ import annotations

from random import Random

import torch
import toys

from decodescope.engine.core.spec import ModelSpec, Rope
from decodescope.engine.model.forward.decoder import Decoder, Layer

KEYS = VALUES = 8
WIDTH = 32  # features: the key of a pair, its value, the key that is asked for, and all other tokens
SPEC = ModelSpec(
    "needles", n_layers=1, n_heads=2, n_kv_heads=2, head_dim=16, d_model=WIDTH, d_ff=4, vocab=KEYS * VALUES + KEYS + VALUES + 8,
    max_positions=512, rope=Rope(dim=16), no_rope=(0,), heads=("duo_attention",),
)  # fmt: skip


def pair(key: int, value: int) -> int:
    """The token that says that `key` has `value`."""
    return key * VALUES + value


def ask(key: int) -> int:
    """The token that asks for the value of `key`."""
    return KEYS * VALUES + key


def answer(value: int) -> int:
    """The token that says a value."""
    return KEYS * VALUES + KEYS + value


def filler(number: int) -> int:
    """One of eight tokens that say nothing."""
    return KEYS * VALUES + KEYS + VALUES + number % 8


END = filler(7)


def shown(r: Random, count: int) -> tuple[list[int], list[tuple[int, int]], list[int], int]:
    """Return (prompt, spans, answer, which): `count` pieces, then a question with the topic of piece `which`.

    Each piece has a topic, a pair, one of two filler words, and END. After the topic, the question has a filler word and the
    key of the pair of piece `which`. By overlap alone, another piece may be as near to the question as that one.
    """
    keys, which = r.sample(range(KEYS), count), r.randrange(count)
    values = [r.randrange(VALUES) for _ in keys]
    prompt: list[int] = []
    for topic, key, value in zip(r.sample(range(5), count), keys, values, strict=True):
        prompt += [filler(topic), pair(key, value), filler(r.choice((5, 6))), END]
    asks = [prompt[4 * which], filler(r.choice((5, 6))), ask(keys[which])]
    return [*prompt, *asks], [(at, at + 4) for at in range(0, len(prompt), 4)], [answer(values[which])], which


def decoder() -> Decoder:
    """The decoder, float64. After `ask(k)` the likeliest token is `answer(v)` of the pair of k that it sees."""
    key, value, asked, other = (slice(at, at + 8) for at in range(0, WIDTH, 8))
    embed = torch.zeros(SPEC.vocab, WIDTH, dtype=torch.float64)
    for k in range(KEYS):
        embed[ask(k), asked][k] = 1
        for v in range(VALUES):
            embed[pair(k, v), key][k] = embed[pair(k, v), value][v] = 1
    for i in range(8):
        embed[answer(i), other][i] = embed[filler(i), other][i] = 1
    eye = torch.eye(8, dtype=torch.float64)
    qkv = torch.zeros(3, 2, 16, WIDTH, dtype=torch.float64)  # queries, keys, values of both heads
    # the norm turns a single 1 into 5.7 and each of two into 4: the pair scores 14
    qkv[0, 0, :8, asked] = 2.5 * eye
    qkv[1, 0, :8, key] = eye
    qkv[2, 0, :8, value] = eye
    out = torch.zeros(WIDTH, 2, 16, dtype=torch.float64)
    out[value, 0, :8] = eye
    one = torch.ones(WIDTH, dtype=torch.float64)
    nothing = torch.zeros(8, WIDTH, dtype=torch.float64), torch.zeros(WIDTH, 4, dtype=torch.float64)
    head = torch.zeros(SPEC.vocab, WIDTH, dtype=torch.float64)
    head[answer(0) : answer(VALUES), value] = eye
    made = Decoder(SPEC, embed, [Layer(one, qkv.flatten(0, 2), out.flatten(1), one, *nothing)], one, head)
    made.heads = {"duo_attention": toys.heads("duo_attention", WIDTH, n_layers=1, n_kv_heads=2)}
    return made
