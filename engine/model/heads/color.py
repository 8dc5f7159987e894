"""CoLoR's scorer: which sentences of a passage a short version of it keeps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .base import Head
from .relevance import Relevance, span_relevance_features


class SentenceScorer(Head):
    """A number for each sentence of a prompt, by the target's own embeddings of it and of what is asked: above 0 it stays. It
    begins undecided.

    Seo et al. 2024, Efficient Long Context Language Model Retrieval with Compression: there a language model writes the short
    version; this one chooses sentences.
    """

    __call__: Callable[..., Tensor]

    kind = "color"

    def __init__(self, d: int, rank: int) -> None:
        super().__init__(d=d, rank=rank)
        self.says = Relevance(d, rank)
        nn.init.normal_(self.says.piece.weight, std=rank**-0.5)
        # so that their products begin as how like both are
        self.says.asked.load_state_dict(self.says.piece.state_dict())
        nn.init.normal_(self.says.out.weight, std=0.1)
        nn.init.zeros_(self.says.out.bias)

    def forward(self, e: Tensor, asked: Tensor, spans: list[tuple[int, int]]) -> Tensor:
        """The logits [u] of keeping each span of e [n, d]; arguments as for `features`."""
        return self.says(*(x.to(self.dtype) for x in span_relevance_features(e, asked, spans))).float()

    @torch.no_grad()
    def scores(self, e: Tensor, asked: Tensor, spans: list[tuple[int, int]]) -> Tensor:
        """The same, of what is not trained on."""
        return self(e, asked, spans)
