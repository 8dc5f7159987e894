"""DraftTops: what the draft itself thought at each tried place, before the sampler, and how it ranked the token that came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ROOT = -1


@dataclass
class DraftTops:
    """The draft's own distribution at each tried place, before the sampler, if a model or a head computed one.

    places: int32 [P]; -1 the root, else the node reached. Only places from which a token was emitted
    ids:    int32 [P, K]; the likeliest tokens of the draft, likeliest first, the lowest id first among equal ones; -1 pads
            where the draft gives fewer a probability above 0
    logp:   float32 [P, K]; their log-probabilities, in nats; minus infinity where `ids` is -1
    rank:   int32 [P]; of the token that came there in the draft's distribution, from 1; tokens as likely as it do not count
    came:   float32 [P]; the log-probability of that token in the draft; minus infinity: the draft excludes it
    """

    places: np.ndarray
    ids: np.ndarray
    logp: np.ndarray
    rank: np.ndarray
    came: np.ndarray

    def row_of(self, place: int) -> int | None:
        """The row of a place; None if it has none."""
        rows = np.flatnonzero(self.places == place)
        return int(rows[0]) if len(rows) else None

    def rank_of(self, place: int, token: int, came: bool) -> int | None:
        """The rank of a token at a place, from 1; one that is not among `ids` has the rank behind them. None: there is no row.

        came: it is the token that came there; its rank is recorded
        """
        row = self.row_of(place)
        if row is None:
            return None
        if came:
            return int(self.rank[row])
        own = self.logp[row][self.ids[row] == token]
        return int((self.logp[row] > (own[0] if len(own) else -np.inf)).sum()) + 1


def tokens_by_place(tokens: Sequence[int], path: Sequence[int], extra: int | None) -> dict[int, int]:
    """The token that came at each place of an accepted path, the root first.

    tokens: of the draft's nodes;  path: accepted nodes from the root down;  extra: the target's own token after them, if any
    """
    came = [tokens[node] for node in path] + ([] if extra is None else [extra])
    return dict(zip([ROOT, *path], came, strict=False))
