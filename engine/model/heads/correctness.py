"""Cascade heads of a small model: is it wrong about a query, and is its answer to one right?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Head, HeadLinear


class CorrectnessHead(Head):
    """Two nets with one hidden layer of width `inner` each, with SiLU, on a small model's states after the final norm. They are
    in that model's folder. All weights are zero until they are trained or read: such a head outputs one half.

    wrong: from the state of the prompt's last token: the chance that the answer to come will be wrong, for a choice between
           models before anything is written (Zhu et al. 2023, arXiv:2306.02003)
    sure:  from the mean of the states that wrote an answer's tokens, with the mean and the lowest of their log-probabilities:
           the confidence that the answer is right, trained so that right answers score above wrong ones by a margin (Li et al.
           2021, Findings of EMNLP, CascadeBERT; there the classifier itself is trained so, and not an additional head)
    """

    kind = "correctness"

    def __init__(self, d: int, inner: int) -> None:
        super().__init__(d=d, inner=inner)
        self.wrong_in, self.wrong_out = HeadLinear(d, inner), HeadLinear(inner, 1)
        self.sure_in, self.sure_out = HeadLinear(d + 2, inner), HeadLinear(inner, 1)
        for p in self.parameters():
            nn.init.zeros_(p)

    @property
    def wrong_widths(self) -> tuple[int, int, int]:
        """Widths of the net for `wrong`: input, hidden, output."""
        return self.shape["d"], self.shape["inner"], 1

    @property
    def sure_widths(self) -> tuple[int, int, int]:
        """The same of `sure`."""
        return self.shape["d"] + 2, self.shape["inner"], 1

    def wrong_logit(self, x: Tensor) -> Tensor:
        """The logit [...] of a wrong answer, for states x [..., d] of prompts' last tokens."""
        return self.wrong_out(F.silu(self.wrong_in(x)))[..., 0]

    def sure_logit(self, mean: Tensor, logp: Tensor) -> Tensor:
        """The logit [...] of a right answer; mean [..., d] of the states that wrote it, logp [..., 2]: mean, lowest, nats."""
        return self.sure_out(F.silu(self.sure_in(torch.cat([mean, logp.to(mean.dtype)], -1))))[..., 0]

    def wrong_probability(self, x: Tensor) -> Tensor:
        """float [...]: P(wrong) by the prompt, from 0 to 1."""
        return self.wrong_logit(x).float().sigmoid()

    def confidence(self, mean: Tensor, logp: Tensor) -> Tensor:
        """float [...]: the confidence in an answer, from 0 to 1; arguments as for `sure_logit`."""
        return self.sure_logit(mean, logp).float().sigmoid()
