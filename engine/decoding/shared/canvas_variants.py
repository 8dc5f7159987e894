"""Tries: several canvases that differ in one place, read in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.exploration import Explored

from ..bases.sampler import softmax
from ..bases.unmasking import Unmasking


@dataclass
class CanvasVariants:
    """Tokens for the open `place`; each gets a canvas of its own in the next pass.

    chance: float32 [K], their probability by the pass before
    """

    place: int
    tokens: list[int]
    chance: np.ndarray

    @classmethod
    def from_top_logits(cls, place: int, logits: Tensor, law: Tensor, most: int) -> CanvasVariants:
        """At most `most` of the tokens with the highest `logits`, float [V], without those at minus infinity; of equal ones
        the first. law: float [V], their probabilities"""
        order = torch.argsort(logits, descending=True, stable=True)[: min(most, int(logits.isfinite().sum()))]
        return cls(place, order.tolist(), law[order].float().cpu().numpy())

    def build_feed(self, text: Sequence[int], fed: range, device: torch.device | str) -> Feed:
        """The rows `fed` of the text once for each token, one copy after the other; a row sees those of its own copy, and all
        entries that are held."""
        copies, rows = len(self.tokens), len(fed)
        tokens = torch.tensor(text[fed.start : fed.stop], device=device).repeat(copies, 1)
        tokens[:, self.place - fed.start] = torch.tensor(self.tokens, device=device)
        positions = torch.arange(fed.start, fed.stop, device=device).repeat(copies)
        own = torch.arange(copies, device=device).repeat_interleave(rows)
        visible = (own[:, None] == own)[None] if copies > 1 else None
        return Feed(tokens.view(1, -1), positions[None], visible, highest=fed.stop - 1)

    def judge_canvases(
        self, selector: Unmasking, logits: Tensor, places: list[int], edge: int, ends: frozenset[int]
    ) -> Explored:
        """The results of the pass. logits: float [K, O, V] at the other open `places` of each canvas; edge: as in `Open`; ends:
        tokens that end a text."""
        best = softmax(logits).max(-1)
        open, candidate = np.array(places, np.int32), best.indices.to(torch.int32).cpu().numpy()
        confidence = best.values.float().cpu().numpy()
        sure, scores = selector.judge(open, edge, self.chance, candidate, confidence, ends)
        return Explored(
            self.place,
            self.tokens,
            self.chance,
            open,
            candidate,
            confidence,
            sure,
            scores,
            int(np.argmax(scores)),
        )
