"""Surprise: a model's loss at each token of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from decodescope.engine.core.prefix import common_prefix
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed

ROWS = 256  # rows of logits held at a time


@torch.inference_mode()
def token_surprise(lane: Lane, before: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
    """float32 [T]: -ln p of each of `tokens` given `before` and the tokens before it; NaN for a first one with nothing before
    it.

    The lane does not read again what it has read; only rows that predict one of `tokens` are unembedded.
    """
    text = [*before, *tokens]
    first = max(0, len(before) - 1)  # the row that predicts the first of them
    at = min(common_prefix(lane.tokens, text), first)
    lane.truncate(at)
    scores = np.full(len(tokens), np.nan, np.float32)
    while at < len(text) - 1:
        fed = text[at : min(at + ROWS, len(text) - 1)]
        rows = [row for row in range(len(fed)) if at + row >= first]
        logits = lane.forward(Feed.causal_chain(fed, at, lane.decoder.device, logits=rows), "score")
        lane.commit(list(range(len(fed))))
        if rows:
            behind = at + rows[0] + 1  # the token that the first of these rows predicts
            due = torch.tensor(text[behind : behind + len(rows)], device=logits.device)
            loss = -logits[0].float().log_softmax(-1).gather(1, due[:, None])[:, 0]
            scores[behind - len(before) : behind - len(before) + len(rows)] = loss.cpu().numpy()
        at += len(fed)
    return scores


def surprise_by_piece(
    lane: Lane, front: list[int], tokens: list[int], starts: list[int], between: Callable[[int, int], None]
) -> np.ndarray:
    """float32 [n]: `token_surprise` of the tokens of each piece, with only `front` before it; pieces begin at `starts`."""
    scores = []
    for start, stop in zip(starts, [*starts[1:], len(tokens)], strict=True):
        between(start, len(tokens))
        scores.append(token_surprise(lane, front, tokens[start:stop]))
    return np.concatenate(scores)
