"""Chapter 7, what the cache holds: the bytes of an entry, and which entry leaves."""

from __future__ import annotations

from ..exercise import Exercise, same_function

size = Exercise(
    "How many bytes does a cache take?",
    lambda layers, kv_heads, head_dim, tokens, width: 2 * layers * kv_heads * head_dim * tokens * width,
    [
        (
            lambda layers, kv_heads, head_dim, tokens, width: layers * kv_heads * head_dim * tokens * width,
            "Those are the keys. What does a query take home from the entry that it found?",
        ),
        (
            lambda layers, kv_heads, head_dim, tokens, width: 2 * kv_heads * head_dim * tokens * width,
            "That is one layer. Every layer has keys and values of its own.",
        ),
        (
            lambda layers, kv_heads, head_dim, tokens, width: 2 * layers * kv_heads * head_dim * tokens,
            "Those are numbers. Each takes `width` bytes.",
        ),
        (
            lambda layers, kv_heads, head_dim, tokens, width: 2 * layers * head_dim * tokens * width,
            "That is one head of each layer, and there are `kv_heads` of them.",
        ),
    ],
    same=same_function((8, 2, 64, 74, 4), (32, 32, 128, 4096, 2), (2, 1, 3, 5, 1)),
    because="A key and a value per token, layer and KV head: half a MiB a token with 32 layers, 32 heads of 128 and 2 bytes.",
    otherwise="Multiply: a key and a value for each layer, KV head, number of a head and token, and the bytes of a number.",
)
victim = Exercise(
    "Which position leaves?",
    1,
    [
        (0, "That is what a window drops: the oldest. H2O asks what the entries have drawn."),
        (4, "It has drawn least, but it is one of the two newest, which stay in any case."),
        (3, "It is one of the two newest, which stay in any case."),
        (2, "It has drawn most of all: that is a heavy hitter."),
    ],
    because="3 and 4 are the newest; of 0, 1 and 2 it has drawn the least.",
    otherwise="Set the two newest aside. Of the others the one with the least attention leaves.",
)
