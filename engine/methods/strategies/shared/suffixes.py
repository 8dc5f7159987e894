"""Suffixes: the losses of a passage's spans as answers, from passes over its suffixes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Suffixes:
    """The results of the passes over a passage of n tokens, for its spans of at most T tokens.

    - losses: float64 [n, T], L + e, NaN where there is no span
    - likely: int64 [n, T], the model's likeliest token behind a span, -1 where there is none;  closes: the likeliest end
    """

    def __init__(self, n: int, longest: int):
        self.losses = np.full((n, longest), np.nan)
        self.likely, self.closes = np.full((2, n, longest), -1)

    def add_rows(
        self, rows: Tensor, tokens: Tensor, at: tuple[Tensor, Tensor], first: Tensor, over: Tensor
    ) -> None:
        """Add the results of a pass.

        - rows: logits [R, V] of `tokens` [R]; `at` is the suffix and the place in it of each, suffix by suffix
        - first: the log-probability of the first token of each suffix, [n];  over: ids that end an answer
        """
        law, (own, deep) = rows.double().log_softmax(-1), at
        gained = first.new_zeros(self.losses.shape)
        gained[own, deep] = torch.where(
            deep == 0, first[own], law.roll(1, 0).gather(1, tokens[:, None])[:, 0]
        )
        ending = law[:, over]  # [R, E]
        losses = -(gained.cumsum(1)[own, deep] + ending.logsumexp(1))
        i, k = own.cpu().numpy(), deep.cpu().numpy()
        for table, values in (
            (self.losses, losses),
            (self.likely, rows.argmax(-1)),
            (self.closes, over[ending.argmax(1)]),
        ):
            table[i, k] = values.cpu().numpy()

    def greedy_span(self, token: int, passage: list[int], ends: frozenset[int]) -> tuple[int, int] | None:
        """(first, tokens) of the span that greedy decoding answers, starting with `token`.

        None: the answer leaves the passage, or is longer than spans may be.
        """
        length, begun = 0, list(range(len(passage)))
        while token not in ends:
            fits = length < self.likely.shape[1]
            begun = [
                i for i in begun if fits and self.likely[i, length] >= 0 and passage[i + length] == token
            ]
            if not begun:
                return None
            token, length = int(self.likely[begun[0], length]), length + 1
        return (begun[0], length) if length else None
