"""Rejections: the places at which drafts were rejected, one by one, so that each can be looked at."""

from __future__ import annotations

from dataclasses import dataclass

LISTED = 1000  # places listed by a report; further ones are only counted


@dataclass(frozen=True)
class Rejection:
    """A place at which every guess was rejected.
    run: number of the run, from 0;  node: the first guess there, as a node of the draft, from 0;  depth: of that guess, from 1;
    kind: of that guess
    entropy: label of the target's entropy there, "" if the record holds no distribution
    believed: label of the range of q, "" if the guess has none
    drafted, came: tokens as they are shown;  before: text before them;  p, q: of the guess, None if there is no such number
    drafted_id, came_id: their ids;  position: in the text, the prompt included, from 0
    draft_rank: of the token that came, in the draft's distribution, from 1; None if the draft recorded none
    """

    run: int
    step: int
    node: int
    depth: int
    kind: str
    entropy: str
    believed: str
    drafted: str
    came: str
    before: str
    p: float | None
    q: float | None
    drafted_id: int
    came_id: int
    position: int
    draft_rank: int | None
