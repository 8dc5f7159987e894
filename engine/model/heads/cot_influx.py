"""CoT-Influx's policies: which worked examples of a prompt stay, and which of their tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Head
from .relevance import Relevance, span_relevance_features, token_relevance_features


class ShotPolicies(Head):
    """Two policies of two layers each over the target's own embeddings: the chance that a worked example stays, and then that
    one of its tokens does. They begin undecided about examples, and by keeping most tokens.

    Huang et al. 2023, arXiv:2312.08901; their policies read a BERT's embeddings.
    """

    kind = "cot_influx"

    def __init__(self, d: int, rank: int) -> None:
        super().__init__(d=d, rank=rank)
        self.shot, self.token = Relevance(d, rank), Relevance(d, rank)
        for policy, bias in ((self.shot, 0.0), (self.token, 2.0)):
            nn.init.normal_(policy.piece.weight, std=rank**-0.5)
            # so that their products begin as how like both are
            policy.asked.load_state_dict(policy.piece.state_dict())
            nn.init.normal_(policy.out.weight, std=0.1)
            nn.init.constant_(policy.out.bias, bias)

    def shots(self, e: Tensor, asked: Tensor, spans: list[tuple[int, int]]) -> Tensor:
        """The logits [s] of keeping each example; arguments as for `features`."""
        return self.shot(*(x.to(self.dtype) for x in span_relevance_features(e, asked, spans)))

    def tokens(self, e: Tensor, asked: Tensor, spans: list[tuple[int, int]]) -> list[Tensor]:
        """Of each example the logits [b - a] of keeping its tokens, if it stays."""
        parts, means, more = zip(*(token_relevance_features(e, asked, a, b) for a, b in spans), strict=True)
        logits = self.token(
            torch.cat(parts).to(self.dtype), means[0].to(self.dtype), torch.cat(more).to(self.dtype)
        )
        return list(logits.split([b - a for a, b in spans]))

    @torch.no_grad()
    def chances(self, e: Tensor, asked: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, list[Tensor]]:
        """The chances themselves, float32: of the examples, and of each one's tokens."""
        both = self.shots(e, asked, spans), self.tokens(e, asked, spans)
        return both[0].float().sigmoid(), [x.float().sigmoid() for x in both[1]]
