"""Acceptance: how far the drafts of a head get on held-out answers, position by position, without decoding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from decodescope.engine.model.heads.base import Head

from .guesses import count_levels, head_guesses, head_logits
from .measures import RANKS
from .target import HeadTarget, ModelStates

AT_ONCE = 256  # places whose guesses go through the vocabulary matrix at once


@dataclass(frozen=True)
class DraftAcceptance:
    """How often guesses are the target's likeliest token, on held-out answers.

    accepted: per position of a draft, the share of guesses that are right where all before them were
    reached:  per position, at how many places all guesses before it were right
    rates:    per position, the share of all places at which the guess of rank 0, 1, ... is right; trees are shaped by them
    """

    accepted: tuple[float, ...]
    reached: tuple[int, ...]
    rates: tuple[tuple[float, ...], ...]

    @property
    def tokens_per_pass(self) -> float:
        """Tokens that a pass of the target gives with a chain of these guesses: those accepted, and one of its own."""
        total, chance = 1.0, 1.0
        for share in self.accepted:
            chance *= share
            total += chance
        return total


@torch.no_grad()
def measure_acceptance(target: HeadTarget, head: Head, batches: Iterable[ModelStates]) -> DraftAcceptance:
    """The acceptance of a head on texts whose values the target has made, `best` and `counted` included.

    A draft goes on where its guess is the token that the text has: its next guess is made behind that token.
    """
    levels = count_levels(head)
    ranks = min(RANKS, target.vocab)
    hits = torch.zeros(levels, ranks, device=target.device)
    count, right, reached = (torch.zeros(levels, device=target.device) for _ in range(3))
    for r in batches:
        assert r.best is not None and r.counted is not None, "values that were made for a measurement"
        going = torch.ones_like(r.counted)
        for level, (s, x) in enumerate(head_guesses(head, r)):
            counted = s.align(r.counted, s.says)
            guesses = _best_guesses(target, head, x[counted], ranks)  # [n, ranks]
            good = guesses == s.align_target(r.best)[counted][:, None]
            before = going[:, : counted.shape[1]][counted]
            hits[level] += good.sum(0)
            count[level] += len(good)
            right[level] += (good[:, 0] & before).sum()
            reached[level] += before.sum()
            follows = torch.zeros_like(going)
            follows[:, : counted.shape[1]][counted] = before & (
                guesses[:, 0] == s.align(r.ids, s.says)[counted]
            )
            going = follows
    hits /= count.clamp(min=1)[:, None]
    return DraftAcceptance(
        tuple((right / reached.clamp(min=1)).tolist()),
        tuple(int(x) for x in reached.tolist()),
        tuple(tuple(round(x, 5) for x in row) for row in hits.tolist()),
    )


def _best_guesses(target: HeadTarget, head: Head, x: Tensor, ranks: int) -> Tensor:
    """int64 [n, ranks]: the likeliest tokens by the features [n, d] that a head made, the best first."""
    parts = [head_logits(target, head, part).topk(ranks).indices for part in x.split(AT_ONCE)]
    return torch.cat(parts) if parts else torch.zeros(0, ranks, dtype=torch.int64, device=x.device)
