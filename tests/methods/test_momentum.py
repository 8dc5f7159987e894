"""Momentum decoding: depth by brute force, greedy without resistance, and the blocking of n-grams."""

from __future__ import annotations

import numpy as np
import torch
import toys

from decodescope.engine.methods.samplers.momentum import Momentum
from decodescope.engine.model.forward.feed import Feed

DECODER = toys.pair()[0].decoder


def depth(text: list[int], token: int, most: int) -> int:
    """The paper's definition: the longest suffix of text plus `token` that also occurs in the text."""
    grown = [*text, token]
    for i in range(min(most, len(text)), 0, -1):
        if any(text[j : j + i] == grown[len(grown) - i :] for j in range(len(text) - i + 1)):
            return i
    return 0


@torch.inference_mode()
def by_hand(count: int, k: int, alpha: float, forbid: int = 0) -> list[int]:
    """f(l) = l, computed from scratch for every token."""
    text = list(toys.PROMPT)
    for _ in range(count):
        p = DECODER.forward(Feed.causal_chain(text, 0), None)[0, -1].softmax(-1)
        best = p.topk(k).indices.tolist()
        far = {v: depth(text, v, max(5, forbid)) for v in best}
        left = [v for v in best if not forbid or far[v] < forbid]
        text.append(max(left, key=lambda v: float(p[v]) - alpha * min(far[v], 5)) if left else best[0])
    return text[len(toys.PROMPT) :]


def run(count: int = 40, **knobs):
    return toys.decode(toys.method(sampler=("momentum", knobs)), count=count)


def test_depth_is_the_longest_repeated_end() -> None:
    g, deep = np.random.default_rng(2), 0
    for length in (1, 2, 5, 30, 60):
        for most in (1, 3, 5, 9):
            text = g.integers(0, 2, length)
            depths = Momentum(resistance=tuple(range(most + 1))).depths(text, np.arange(3)).tolist()
            assert depths == [depth(text.tolist(), v, most) for v in range(3)] and depths[2] == 0
            deep = max(deep, *depths)
    assert deep > 5, "the test needs long repeats"


def test_without_resistance_it_is_greedy() -> None:
    assert run(alpha=0.0).end.tokens == toys.greedy_text(DECODER, toys.PROMPT, 40) == run(top_k=1).end.tokens


def test_text_is_that_by_hand_and_is_deflected() -> None:
    for alpha in (0.05, 0.2, 1.0):
        session = run(alpha=alpha, top_k=5)
        assert session.end.tokens == by_hand(40, 5, alpha)
    shown = [step.sampler for step in session.sink.steps]
    assert any(x["deflected"] for x in shown) and not all(x["deflected"] for x in shown[1:])
    written = [*toys.PROMPT, *session.end.tokens]
    assert [x["depth"] for x in shown[1:]] == [
        depth(written[: len(toys.PROMPT) + i], token, 5) for i, token in enumerate(session.end.tokens[:-1])
    ]


def test_what_is_forbidden_from_four_on_is_the_blocking_of_4_grams() -> None:
    session = run(60, alpha=0.0, top_k=13, no_repeat_ngram_size=4)
    assert session.end.tokens == by_hand(60, 13, 0.0, 4)
    written = [*toys.PROMPT, *session.end.tokens]
    grams = [tuple(written[i : i + 4]) for i in range(len(toys.PROMPT) - 4, len(written) - 3)]
    assert len(set(grams)) == len(grams)
    greedy = [*toys.PROMPT, *toys.greedy_text(DECODER, toys.PROMPT, 60)]
    plain = [tuple(greedy[i : i + 4]) for i in range(len(greedy) - 3)]
    assert len(set(plain)) < len(plain), "the test needs a text that repeats itself"
