"""Hypotheses: several texts behind one prompt, which a search extends by a token a step; and the best extensions of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.state import State
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.records.events import Beams

Hypothesis = tuple[list[int], float]  # tokens behind the prompt, and the sum of their log-probabilities
Extension = tuple[int, int, float]  # which hypothesis, by what token, and the sum with it


def read(s: State, texts: list[list[int]]) -> Tensor:
    """float [B, V]: the logits behind each text, whose last token is read, all in one pass; that is committed afterwards."""
    device, written = s.target.decoder.device, len(texts[0])
    roots = [text[-1] if text else s.tokens[-1] for text in texts]
    position = len(s.tokens) - 1 + written
    places = torch.full((len(roots), 1), position, device=device)
    return s.target.forward(Feed(torch.tensor(roots, device=device)[:, None], places, highest=position))[:, 0]


@dataclass
class Chosen:
    """The extensions that go on, best first; those that ended before the last of them; and the next best, which were left."""

    alive: list[Extension] = field(default_factory=list)
    ended: list[Hypothesis] = field(default_factory=list)
    pruned: list[Extension] = field(default_factory=list)

    def record(self) -> Beams:
        """As a trace keeps it."""
        columns = [list(column) for column in zip(*self.alive, strict=True)] or [[], [], []]
        finished = [{"tokens": text, "score": score} for text, score in self.ended]
        return Beams(columns[1], columns[0], columns[2], finished, pruned=[list(x) for x in self.pruned])


def chosen(
    s: State, texts: list[list[int]], scores: Tensor, width: int, worth: Tensor | None = None
) -> Chosen:
    """Of all extensions by `scores` (float64 [B, V], sums of log-probabilities) the best `width` that go on; what ends a text
    counts where it is better than the last of them. worth: by what they are ranked, where that is not the score.

    Of n stop ids each text ends by n extensions at most, so among the best width * (n + 1) enough go on. A text to stop at
    may end it by any token, and then further ones are looked at until enough are found.
    """
    rank = (scores if worth is None else worth).flatten()
    count = min(width * (1 + max(1, len(s.stop.tokens))), len(rank))
    while True:
        best = rank.topk(count).indices
        choice = _parted(s, texts, best.tolist(), scores.flatten()[best].tolist(), scores.shape[1], width)
        if len(choice.alive) == width or count == len(rank):
            return choice
        count = min(2 * count, len(rank))


def _parted(
    s: State, texts: list[list[int]], best: list[int], scores: list[float], vocab: int, width: int
) -> Chosen:
    choice = Chosen()
    for flat, score in zip(best, scores, strict=True):
        parent, token = divmod(flat, vocab)
        if len(choice.alive) == width:
            choice.pruned.append((parent, token, score))
        elif s.stop.at(texts[parent], [token]) is not None:
            choice.ended.append(([*texts[parent], token], score))
        else:
            choice.alive.append((parent, token, score))
    return choice
