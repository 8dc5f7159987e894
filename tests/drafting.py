"""Drafts of the lively toy target, seen with the text that they were made for; for the tests of drafters with heads."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import toys
from decodescope.engine import Session
from decodescope.engine.draft import Draft
from decodescope.engine.drafters.base import Drafter
from decodescope.engine.feed import Feed
from decodescope.engine.probe import Needs, Probe


def feature_of(text: list[int]) -> torch.Tensor:
    """float64 [n, d]: the lively target's final features over a text."""
    probe = Probe(Needs(hidden=frozenset({"final"})))
    with torch.inference_mode():
        toys.pair()[0].decoder.forward(Feed.causal(text, 0), None, probe)
    return probe.hidden["final"][0]


def drafts(
    kind: str, settings: dict, steps: int = 8, sampler: str = "greedy", prompt: list[int] = toys.PROMPT
) -> Iterator[tuple[list[int], Draft, Drafter]]:
    """(text with the root last, draft, drafter) of the first steps of a run of the lively target."""
    target, _ = toys.pair()
    method = toys.method(drafter=(kind, settings), sampler=sampler)
    session = Session(target, method, prompt, max_new_tokens=200, seed=5)
    session.start()
    propose, made = session.drafter.propose, []
    session.drafter.propose = lambda ctx: made.append((list(ctx.tokens), propose(ctx))) or made[-1][1]  # type: ignore[method-assign]
    for _ in range(steps):
        session.step()
        yield (*made[-1], session.drafter)


def path_of(draft: Draft, node: int) -> list[int]:
    """Tokens from the root's child down to `node`; empty for the root."""
    return [] if node < 0 else [*path_of(draft, draft.parents[node]), draft.tokens[node]]
