"""Mirostat 1: hold the surprise of the text near a target, by a top-k whose k follows from Zipf's law."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.values.alphabet import Alphabet

from .shared.surprise import surprise_bits, update_mu


class _Mirostat1State(NamedTuple):
    """mu in bits; the surprise of the last token, the exponent of its distribution, and its k."""

    mu: float
    seen: float | None = None
    exponent: float | None = None
    k: int | None = None


@component
class Mirostat1(Sampler):
    """Choose k from the target surprise, under the assumption that p follows Zipf's law with exponent s.

    The mean surprise of the k most likely tokens can then be solved for k. So s is estimated from the `zipf_tokens` most likely
    tokens, by least squares of ln(p_i / p_i+1) over ln((i + 2) / (i + 1)), and

        k = (eps 2^mu / (1 - N^-eps))^(1/s) + 1,   eps = s - 1, N ids.

    mu starts at twice the target and moves by the error of each token's surprise, measured before the cut. Costs the
    `zipf_tokens` largest of the vocabulary and a top-k.

    Differences from the authors' code: N is the model's vocabulary, not 50,000. At s = 1, where the formula is 0 / 0, its limit
    (2^mu / ln N)^(1/s) is used. Tokens that an earlier sampler removed take no part. Tokens as likely as the last kept one also
    stay. mu is held within four targets of 0, because it would diverge if the target cannot be reached.
    """

    title = "Mirostat 1"
    source = "Basu et al. 2021, arXiv:2007.14966, algorithm 1; basusourya/mirostat, mirostat.py"
    stateful = True
    reads_logits = True
    tells: ClassVar[dict[str, Note]] = {
        "mu": Note("series", "mu", "bits", "what k is solved for", line="target_surprise"),
        "surprise": Note(
            "series", "surprise", "bits", "of the token before this step", line="target_surprise"
        ),
        "exponent": Note("series", "exponent", "", "of Zipf's law, for the token before this step"),
        "k": Note("series", "k", "tokens", "that stayed for the token before this step"),
    }

    target_surprise: float = param(
        3.0, low=0.5, high=12.0, step=0.1, unit="bits", help="mean surprise per token to aim for (tau)"
    )
    learning_rate: float = param(
        1.0, low=0.01, high=1.0, step=0.01, help="learning rate of mu, which sets the cutoff (eta)"
    )
    zipf_tokens: int = param(
        100,
        low=2,
        high=1000,
        unit="tokens",
        help="number of top ranks from which the Zipf exponent is estimated (m)",
    )

    def start(self, prompt: list[int], vocab: int, alphabet: Alphabet | None = None) -> _Mirostat1State:
        return _Mirostat1State(2 * self.target_surprise)

    def exponent(self, logits: Tensor) -> float:
        """s, from logits [V]."""
        top = logits.double().topk(min(self.zipf_tokens + 1, len(logits))).values
        top = top[torch.isfinite(top)]
        if len(top) < 2:
            return math.inf  # only one token is left
        ranks = torch.arange(1, len(top) + 1, dtype=torch.float64, device=top.device).log()
        return float(torch.dot(ranks.diff(), -top.diff()) / ranks.diff().square().sum())

    def kept_count(self, s: float, mu: float, vocab: int) -> int:
        """k, from 1 to `vocab`; computed in logarithms, because a flat distribution has s near 0."""
        eps = s - 1
        if math.isinf(s):
            return 1
        part = (
            math.log(eps / -math.expm1(-eps * math.log(vocab)))
            if abs(eps) > 1e-6
            else -math.log(math.log(vocab))
        )
        k = math.exp(min(max((mu * math.log(2) + part) / max(s, 1e-9), 0.0), math.log(vocab)))
        return min(round(k) + 1, vocab)

    def warp(self, logits: Tensor, state: _Mirostat1State) -> Tensor:
        k = self.kept_count(self.exponent(logits), state.mu, len(logits))
        return logits.masked_fill(logits < logits.topk(k).values[-1], -torch.inf)

    def update(self, state: _Mirostat1State, token: int, logits: Tensor) -> _Mirostat1State:
        seen, s = surprise_bits(logits, token), self.exponent(logits)
        mu = update_mu(state.mu, seen, self.target_surprise, self.learning_rate, -4 * self.target_surprise)
        return _Mirostat1State(mu, seen, s, self.kept_count(s, state.mu, len(logits)))

    def state_summary(self, state: _Mirostat1State) -> dict[str, Any]:
        s = state.exponent
        return {
            "mu": state.mu,
            "surprise": state.seen,
            "exponent": None if s is None or math.isinf(s) else s,
            "k": state.k,
        }
