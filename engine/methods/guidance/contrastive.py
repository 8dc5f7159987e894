"""Contrastive decoding: prefer tokens that a large model finds likely and a small one does not."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.guidance import Guidance
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.trace.records.choices import Choice

from .shared.draft_logits import read_draft_logits

SHOWN = 5  # recorded candidates of each kind: the best by the score, and the likeliest of the target


@component
class Contrastive(Guidance):
    """p' is the softmax of log p(v) - lambda log q(v) over the plausible tokens, p(v) >= alpha max p, and 0 elsewhere. p is the
    distribution of the target, the expert. q is that of a smaller model with the same tokens, the amateur, at its own
    temperature. Both make the same mistakes, but the amateur makes more, so the difference is what the expert knows better. At
    lambda = 0, p' is p over the plausible tokens, so its greedy text is the target's. At alpha = 1 one token is plausible,
    except for ties.

    The amateur reads the root and the draft's tree in its own lane, with the tree's own attention, and commits what the target
    commits. So verification is exact for p' with any drafter. Drafts that follow the target alone are rejected more often.
    Costs a pass of the amateur for each of the target, and [N + 1, V] numbers twice.

    The authors' code searches by beams of 5, with alpha = 0.1. Here a sampler chooses, greedy by default. Another sampler
    draws from p', which the paper does not do. lambda and temperature are those of the authors' command.
    """

    title = "Contrastive decoding"
    source = "Li et al. 2023, arXiv:2210.15097, section 3; XiangLi1999/ContrastiveDecoding, text-generation/run_generation.py"
    caution = "The amateur must be clearly weaker; of one that is nearly as good the difference is noise."
    lanes = ("amateur",)
    cuts = True

    alpha: float = param(
        0.1,
        low=0.001,
        high=1.0,
        step=0.01,
        help="drop tokens less likely than this share of the likeliest token's probability",
    )
    strength: float = param(
        1.0,
        low=0.0,
        high=2.0,
        step=0.1,
        help="factor of the amateur's log-probabilities that are subtracted (lambda); 0: none",
    )
    temperature: float = param(0.5, low=0.1, high=2.0, step=0.1, help="temperature of the amateur model")

    def rows(self, logits: Tensor, hidden: dict[int | str, Tensor], draft: Draft, ctx: Context) -> Tensor:
        lane = ctx.lanes["amateur"]
        amateur = read_draft_logits(lane, ctx.tokens, draft).to(logits.dtype)
        p, q = logits.log_softmax(-1), (amateur / self.temperature).log_softmax(-1)
        # for a token with q = 0: p - lambda log q stays finite
        q.clamp_(min=torch.finfo(q.dtype).min / 4)
        floor = p.amax(-1, keepdim=True) + math.log(self.alpha)
        self._lane, self._terms = lane, (p, q, floor[:, 0])
        return (p - self.strength * q).masked_fill_(p < floor, -torch.inf)

    def observe(self, outcome: DraftOutcome) -> None:
        self._lane.commit(outcome.verdict.rows)

    def choices(self, rows: list[int], tokens: list[int]) -> list[Choice]:
        return [self._choice(row, token) for row, token in zip(rows, tokens, strict=True)]

    def _choice(self, row: int, token: int) -> Choice:
        """The record of the place of one row, where `token` was written."""
        p, q, floor = (x[row] for x in self._terms)  # log p and log q [V]
        score = (p - self.strength * q).masked_fill_(p < floor, -torch.inf)
        likely = [row.topk(min(SHOWN, len(row))).indices.tolist() for row in (score, p)]
        ids = sorted({token, *likely[0], *likely[1]}, key=lambda x: (-float(score[x]), -float(p[x])))
        sums = [None if x == -math.inf else x for x in score[ids].tolist()]
        terms = {"log p": p[ids].tolist(), "log q": q[ids].tolist()}
        return Choice(
            ids,
            ids.index(token),
            terms,
            {"log p": 1.0, "log q": -self.strength},
            sums,
            {"log p": float(floor)},
        )
