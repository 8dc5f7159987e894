"""Random hidden Markov models for tests, in memory and as files."""

from __future__ import annotations

from pathlib import Path

import torch

from decodescope.engine.decoding.shared.hidden_markov import HiddenMarkov, encode_hidden_markov, hash_tokens
from decodescope.engine.decoding.values.alphabet import Alphabet


def random_markov(vocab: int, seed: int = 0, hidden: int = 3) -> HiddenMarkov:
    """A model whose probabilities are all above 0."""
    r = torch.Generator().manual_seed(seed)
    shapes = ((hidden,), (hidden, hidden), (vocab, hidden))
    initial, transition, emission = (torch.rand(*x, generator=r, dtype=torch.float64) + 0.02 for x in shapes)
    return HiddenMarkov(
        initial / initial.sum(), transition / transition.sum(1, keepdim=True), emission / emission.sum(0)
    )


def write_markov(folder: Path, alphabet: Alphabet) -> str:
    """The path of a new file with a random model of this alphabet."""
    path = folder / "random.hmm"
    path.write_text(encode_hidden_markov(random_markov(alphabet.vocab), hash_tokens(alphabet)))
    return str(path)
