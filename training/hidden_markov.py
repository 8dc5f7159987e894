"""Fit a hidden Markov model to texts that a model writes, for samplers that weigh the ways to finish a format.

    python -m decodescope.training.hidden_markov lab lab.hmm
    python -m decodescope.training.hidden_markov lab lab.hmm --hidden 16 --prompts 40 --iterations 30

The texts are sampled from the model at temperature 1, as answers to its instruction prompts: training tasks of all kinds, and
beginnings of stories and drills, as `correctness.py` makes them. Deng, Kung and Peng 2025, arXiv:2510.03595, call such a
distillation instruction-aware. Only the answers are fitted, each from its first token to its stop token.

The fit is expectation maximisation (Baum and Welch), with each step of the forward pass scaled to sum to 1. Small counts are
added, so no probability is 0. A tenth of the texts is held out; their mean log-probability a token is printed, and that of a
model with one hidden state.

Some minutes on one CPU core. The file is a text, and holds logarithms as 16-bit numbers.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from decodescope.engine.decoding.shared.hidden_markov import (
    HiddenMarkov,
    encode_hidden_markov,
    hash_tokens,
)
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.session.batch.decode import BatchSettings, decode_batch
from decodescope.engine.session.load import Model, load
from decodescope.engine.session.session import stop_condition

from .correctness import prompts

LENGTH = 96  # tokens of a text, at most
HELD_OUT = 10  # one text of this many
BASE = 0.5  # added counts of a hidden state, spread as tokens are frequent
FLAT = 1e-4  # added count of every token
Padded = tuple[Tensor, Tensor]  # ids int64 [N, L], and bool [N, L]: the places that hold a token


def sample_texts(model: Model, each: int, seed: int) -> list[list[int]]:
    """Answers of the model to prompts, `each` of every kind of task, with their stop tokens."""
    asked = [ids for _, ids in prompts(model, "train", each, seed)]
    settings = BatchSettings(
        Temperature(temperature=1.0), stop_condition(model, None, []), max_new=LENGTH, seed=seed
    )
    return [text.tokens for text in decode_batch(model, asked, settings).texts if text.tokens]


def pad_texts(texts: Sequence[Sequence[int]]) -> Padded:
    """Texts as one table; absent places hold id 0."""
    longest = max(map(len, texts))
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    return ids, torch.arange(longest) < torch.tensor([*map(len, texts)])[:, None]


def expected_counts(model: HiddenMarkov, texts: Padded) -> tuple[Tensor, Tensor, Tensor, float]:
    """(counts of first states [H], of moves [H, H], of tokens [V, H], mean ln p of a token) given the texts."""
    ids, there = texts
    likely = model.emission[ids]  # [N, L, H]
    forward, scale = torch.empty_like(likely), torch.ones_like(ids, dtype=torch.float64)
    now = model.initial.expand(len(ids), -1)
    for t in range(ids.shape[1]):
        joint = now * likely[:, t]
        scale[:, t] = joint.sum(1)
        forward[:, t] = joint / scale[:, t, None]
        now = forward[:, t] @ model.transition
    later = torch.ones_like(forward[:, 0])
    beliefs, moves = torch.empty_like(likely), torch.zeros_like(model.transition)
    for t in reversed(range(ids.shape[1])):
        here = there[:, t, None]
        beliefs[:, t] = torch.where(here, forward[:, t] * later, 0.0)
        before = torch.where(here, likely[:, t] * later / scale[:, t, None], 0.0)
        if t:
            moves += forward[:, t - 1].T @ before
        later = torch.where(here, before @ model.transition.T, 1.0)
    tokens = torch.zeros_like(model.emission).index_add_(0, ids[there], beliefs[there])
    return beliefs[:, 0].sum(0), moves * model.transition, tokens, float(scale[there].log().mean())


def fit_hidden_markov(
    texts: Sequence[Sequence[int]],
    vocab: int,
    hidden: int,
    iterations: int,
    seed: int,
    say: Callable[[str], None] = lambda text: None,
) -> HiddenMarkov:
    """The model that `iterations` steps of expectation maximisation give, from a random one."""
    padded, r = pad_texts(texts), torch.Generator().manual_seed(seed)
    used = torch.bincount(padded[0][padded[1]], minlength=vocab).double()
    base = (BASE * used / used.sum() + FLAT)[:, None]

    def noise(*shape: int) -> Tensor:
        return -torch.rand(*shape, generator=r, dtype=torch.float64).clamp_min(1e-9).log()

    emission = (used[:, None] * noise(vocab, hidden)) + base
    model = normalise(noise(hidden), noise(hidden, hidden), emission)
    for i in range(iterations):
        first, moves, tokens, mean = expected_counts(model, padded)
        model = normalise(first + 0.01, moves + 0.01, tokens + base)
        if i % 10 == 0 or i == iterations - 1:
            say(f"{i:4}  {mean:.3f} nats a token")
    return model


def normalise(initial: Tensor, transition: Tensor, emission: Tensor) -> HiddenMarkov:
    """The model of these counts, [H], [H, H] and [V, H], all above 0."""
    return HiddenMarkov(
        initial / initial.sum(), transition / transition.sum(1, keepdim=True), emission / emission.sum(0)
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Sample texts, fit, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="the model, by name or path")
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--hidden", type=int, default=24, help="hidden states")
    parser.add_argument("--prompts", type=int, default=80, help="prompts of every kind")
    parser.add_argument("--iterations", type=int, default=60, help="steps of expectation maximisation")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args(argv)
    model = load(a.model)
    alphabet = model.alphabet(model.spec.vocab, frozenset(model.stop_tokens))
    assert alphabet is not None, "the model has a tokenizer"
    texts = sample_texts(model, a.prompts, a.seed)
    held, learned = texts[::HELD_OUT], [x for i, x in enumerate(texts) if i % HELD_OUT]
    print(f"{len(texts)} texts, {sum(map(len, texts))} tokens")
    fitted = fit_hidden_markov(learned, model.spec.vocab, a.hidden, a.iterations, a.seed, print)
    plain = fit_hidden_markov(learned, model.spec.vocab, 1, 1, a.seed)
    means = [expected_counts(x, pad_texts(held))[3] for x in (fitted, plain)]
    print(f"held out: {means[0]:.3f} nats a token, {means[1]:.3f} with one hidden state")
    assert math.isfinite(means[0])
    a.out.write_text(encode_hidden_markov(fitted, hash_tokens(alphabet)), encoding="utf-8")


if __name__ == "__main__":
    main()
