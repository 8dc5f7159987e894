"""Entropy: the large model writes where the laws of the last tokens are spread out."""

from __future__ import annotations

import math

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.router import Judged, Question, Router
from decodescope.engine.trace.details.answered import Candidate, mean_entropy
from decodescope.engine.trace.details.switched import Size, goes_on


@component
class Entropy(Router):
    """Entropy Adaptive Decoding, by token: H_t is the entropy in bits of the law that the writing model gives the next token,
    before the sampler, and the mean of the last `window` of them decides whose turn it is, once the writer has made `stay`
    tokens in a row: above tau the large model's, else the small one's. A model that takes over first reads, in one block,
    what the other one wrote. The trace charges that, which the paper's cost, parameters per token, leaves out.

    The entropies of two models are not on one scale: `shift` is added to tau while the large one writes. `start`, what
    becomes of the window at a change (`reset`) and the minimum stay are not stated in what could be read of the paper; 10 is
    ours. With tau at its highest and the small model first the text is the small model's, with tau below 0 and the large one
    first the large's.

    By answer (strategy cascade) the window is the whole answer: the small model's is kept where its tokens have up to tau
    bits on average. That form is ours.
    """

    title = "Entropy (EAD)"
    source = "Simonds 2025, arXiv:2502.06833 [recalled: reviews of it; no official code was found]"
    of = frozenset({"token", "answer"})
    by = "entropy"
    above = False

    tau: float = param(
        1.0, low=-1.0, high=64.0, unit="bits", help="mean entropy above which the large model writes"
    )
    shift: float = param(
        0.0, low=-64.0, high=64.0, unit="bits", help="added to tau while the large model writes"
    )
    window: int = param(5, low=1, high=1024, unit="tokens", help="w, of whose entropies the mean is taken")
    stay: int = param(
        10, low=1, high=1024, unit="tokens", help="d_min, that a model writes in a row at least"
    )
    start: str = param("large", choices=("small", "large"), help="which model writes first")
    reset: bool = param(False, help="begin the window anew where the models change")

    @property
    def first(self) -> Size:
        return "small" if self.start == "small" else "large"

    def score(self, logits: Tensor) -> float:
        law = logits.double().log_softmax(-1)
        # a token that cannot come has no bits
        return float(-(law.exp() * law.clamp_min(-1e4)).sum()) / math.log(2)

    def turn(self, active: Size, scores: list[float], stay: int) -> tuple[float, float, Size]:
        del scores[: -self.window]
        mean, tau = sum(scores) / len(scores), self.tau + (self.shift if active == "large" else 0.0)
        turn = goes_on(active, mean, tau, stay, self.stay)
        if self.reset and turn != active:
            scores.clear()
        return mean, tau, turn

    def judge(self, answers: list[Candidate], question: Question) -> Judged:
        question.look("entropy", len(answers[0].tokens))
        return Judged(mean_entropy(answers, 0))
