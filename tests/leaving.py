"""A deep toy that has read a prompt, and one of its passes under a depth rule."""

from __future__ import annotations

import torch
import toys

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.records.exits import Exit

DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=6), 3, torch.float64))


def reader() -> Lane:
    """A lane of the toy that has read the usual prompt."""
    lane = Lane("target", DEEP.decoder, build("policy", "keep_all"))
    with torch.inference_mode():
        lane.read(toys.PROMPT)
    return lane


def asked(lane: Lane, name: str, settings: dict, tokens: list[int]) -> Exit:
    """Return the exit of one pass over `tokens` after the prompt; the pass is taken back."""
    rule = build("adaptive_depth", name, settings)
    rule.attach_lane(lane)
    rule.begin(DEEP.spec)
    feed = Feed.causal_chain(tokens, len(lane.tokens))
    with torch.inference_mode():
        lane.forward(feed, skip=rule.plan(0, feed), depth=rule)
    lane.rollback()
    return rule.take_exit()
