"""Confidence: stop drafting as soon as the draft is unsure, by a threshold that tunes itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import DraftedToken
from decodescope.engine.decoding.bases.schedule import Schedule

if TYPE_CHECKING:
    from decodescope.engine.decoding.bases.context import Context, DraftOutcome

ENOUGH = 5  # the threshold is tuned above this number of pairs
MISS = 3.0  # the cost of holding back a token that would be accepted, in units of rejected tokens let through


@component
class Confidence(Schedule):
    """Drafting stops after the first token with a low-confidence distribution.

    The confidence is the largest probability before the sampler, compared with the threshold. That token is still verified.

    The threshold tunes itself. Every token that the target judged (the accepted ones and the first rejected one) is a pair
    (probability, accepted). Once there are more than five pairs, of both kinds, the threshold becomes one of their
    probabilities t. It is the t for which "accepted, if its probability is at least t" has the least false-positive rate + 3 x
    false-negative rate; of several, the largest. It is computed again after each step, over all pairs of the run. With
    `tune_threshold` false it does not change.

    The original takes the probability of the token itself; under a greedy sampler this is also the largest one.
    """

    title = "Confidence threshold, self-tuning"
    source = "huggingface/transformers, generation/candidate_generator.py; huggingface.co/blog/dynamic_speculation_lookahead"
    tells: ClassVar[dict[str, Note]] = {
        "threshold": Note("series", "bar", what="a guess less likely than this ends the draft"),
        "pairs": Note("series", "pairs", "tokens", "judged guesses that the bar is tuned on"),
        "sure": Note(
            "node", "sure", what="the draft's largest probability, before the sampler", line="threshold"
        ),
        "stop": Note("set", "ended by", what="what ended the draft"),
    }

    threshold: float = param(
        0.4,
        low=0.0,
        high=1.0,
        step=0.01,
        help="drafting stops when the largest probability is below this; tuning starts from it",
    )
    max_draft_tokens: int = param(20, low=1, high=64, unit="tokens", help="maximum length of a draft")
    tune_threshold: bool = param(
        True, help="adapt the threshold to the tokens that were accepted and rejected"
    )

    def begin(self, ctx: Context) -> None:
        self._bound = self.threshold
        self._sure: list[float] = []  # of the current draft
        self._seen: list[float] = []
        self._right: list[bool] = []

    def draft_limit(self, ctx: Context, length: int) -> int:
        self._sure = []
        return min(self.max_draft_tokens, ctx.room)

    def continue_drafting(self, drafted: DraftedToken) -> bool:
        self._sure.append(drafted.confidence)
        return drafted.confidence >= self._bound

    def observe(self, outcome: DraftOutcome) -> None:
        accepted = len(outcome.verdict.path)
        self._seen += self._sure[
            : accepted + 1
        ]  # the first rejected token was judged, those behind it were not
        self._right += [i < accepted for i in range(len(self._sure[: accepted + 1]))]
        if self.tune_threshold and len(self._seen) > ENOUGH and 0 < sum(self._right) < len(self._right):
            self._bound = best_threshold(self._seen, self._right)

    def notes(self) -> dict[str, Any]:
        stopped = "threshold" if self._sure and self._sure[-1] < self._bound else "length"
        sure = [round(x, 4) for x in self._sure]
        said = {"threshold": round(self._bound, 4), "pairs": len(self._seen), "sure": sure, "stop": stopped}
        return {"schedule": said}


def best_threshold(sure: Sequence[float], right: Sequence[bool]) -> float:
    """The value t of `sure` for which the rule "right, if at least t" has the least cost; of several, the largest.

    The cost is the false-positive rate + MISS times the false-negative rate. There must be right and wrong ones.
    """
    values, order = torch.tensor(sure, dtype=torch.float64).sort(descending=True)
    hits = torch.tensor(right)[order].double().cumsum(0)  # right ones among the first i + 1
    misses = torch.arange(1, len(values) + 1) - hits
    cost = misses / misses[-1] + MISS * (1 - hits / hits[-1])
    cost[:-1][values[:-1] == values[1:]] = torch.inf  # equal values are let through together
    return float(values[cost.argmin()])
