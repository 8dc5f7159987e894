"""The fit of a hidden Markov model: expectation maximisation climbs, and it finds again what texts were drawn from."""

from __future__ import annotations

import torch

from decodescope.training.hidden_markov import expected_counts, fit_hidden_markov, pad_texts


def test_the_fit_finds_two_hidden_states_that_take_turns() -> None:
    """Texts alternate between ids 0, 1 and ids 2, 3. So a token costs ln 2 nats, and ln 4 without hidden states."""
    r = torch.Generator().manual_seed(0)
    texts = [
        [2 * (i % 2) + int(torch.randint(2, (1,), generator=r)) for i in range(int(n))]
        for n in torch.randint(2, 12, (60,), generator=r)
    ]
    means = []
    for iterations in (1, 4, 40):
        model = fit_hidden_markov(texts, 4, 2, iterations, seed=1)
        means.append(expected_counts(model, pad_texts(texts))[3])
    assert means == sorted(means) and abs(means[-1] + 0.693) < 0.03, means
    assert float(model.transition.diagonal().max()) < 0.05
    first, moves, tokens, _ = expected_counts(model, pad_texts(texts))
    assert abs(float(first.sum()) - 60) < 1e-9 and abs(float(tokens.sum()) - sum(map(len, texts))) < 1e-9
    assert abs(float(moves.sum()) - (sum(map(len, texts)) - 60)) < 1e-9
