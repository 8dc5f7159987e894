"""A soft prompt: trained embeddings before a text; no token has such embeddings."""

from __future__ import annotations

import torch
from torch import nn

from .base import Head


class SoftPrompt(Head):
    """embeds: float [tokens, d], inputs of the model's first layer.

    Trained under a cache that is compressed, to make up for what that loses: Xu et al. 2023, arXiv:2305.11186.
    """

    kind = "compress_then_prompt"

    def __init__(self, d: int, tokens: int) -> None:
        super().__init__(d=d, tokens=tokens)
        self.embeds = nn.Parameter(torch.empty(tokens, d))
