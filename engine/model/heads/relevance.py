"""Relevance: how much a piece of a text matters to the question in the text, as a number."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import HeadLinear, unit_rms_norm

MORE = 4  # numbers for a piece in addition to its mean


class Relevance(nn.Module):
    """Two layers over a piece and what is asked: both are mapped to `rank` numbers, and what is read are theirs, their
    products, and MORE numbers that need no map. It costs some (2 d + 4 rank) rank products a piece."""

    __call__: Callable[..., Tensor]

    def __init__(self, d: int, rank: int) -> None:
        super().__init__()
        self.piece, self.asked = HeadLinear(d, rank, bias=False), HeadLinear(d, rank, bias=False)
        self.hidden, self.out = HeadLinear(3 * rank + MORE, rank), HeadLinear(rank, 1)

    def forward(self, pieces: Tensor, asked: Tensor, more: Tensor) -> Tensor:
        """The logit [u] of pieces [u, d] for the question asked [d]; more [u, MORE]."""
        a, b = self.piece(pieces), self.asked(asked).expand(len(pieces), -1)
        return self.out(F.silu(self.hidden(torch.cat([a, b, a * b, more.to(a.dtype)], -1))))[:, 0]


def center_embeddings(embeddings: Tensor) -> Tensor:
    """float [n, d]: the embeddings of a text's tokens at unit mean square, minus their mean over the text: what the whole text
    has in common is no evidence about a piece."""
    e = unit_rms_norm(embeddings.float())
    return e - e.mean(0)


def cosine_matrix(e: Tensor, asked: Tensor) -> Tensor:
    """float [n, a]: cosines of tokens e [n, d] and those that ask [a, d]."""
    return F.normalize(e, dim=1) @ F.normalize(asked, dim=1).T


def span_relevance_features(
    e: Tensor, asked: Tensor, spans: list[tuple[int, int]]
) -> tuple[Tensor, Tensor, Tensor]:
    """The inputs of `Relevance` for spans of a text with tokens e [n, d] (as `center_embeddings`) and asking tokens `asked`
    [a, d].

    Returns means [u, d], the mean of the asking tokens [d], and more [u, MORE]: the cosine of both means, the mean over asking
    tokens of their best cosine in the span, the logarithm of its length, and its place from 0 to 1."""
    near = cosine_matrix(e, asked)
    means = torch.stack([e[a:b].mean(0) for a, b in spans])
    best = torch.stack([near[a:b].amax(0).mean() for a, b in spans])
    cosine = F.cosine_similarity(means, asked.mean(0)[None])
    length = torch.tensor([float(b - a) for a, b in spans], device=e.device).log() / 4
    return means, asked.mean(0), torch.stack([cosine, best, length, _relative_places(len(spans), e)], 1)


def token_relevance_features(e: Tensor, asked: Tensor, a: int, b: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same of each token of the span from a to b: its best cosine with a token that asks, with the mean of the span, and
    with the mean of what asks, and its place in the span."""
    mean = e[a:b].mean(0)
    best = cosine_matrix(e[a:b], asked).amax(1)
    cosines = (F.cosine_similarity(e[a:b], x[None]) for x in (mean, asked.mean(0)))
    return e[a:b], asked.mean(0), torch.stack([best, *cosines, _relative_places(b - a, e)], 1)


def _relative_places(count: int, like: Tensor) -> Tensor:
    """float [count], from 0 to 1."""
    return torch.linspace(0, 1, count, device=like.device)
