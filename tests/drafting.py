"""Drafts of the lively toy target, with the text that they were made for; for tests of drafters with heads."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
import toys

from decodescope.engine import Session
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.drafting.draft_vocabulary import fused_layers
from decodescope.engine.model.stores.cache import LayerStore


def feature_of(
    text: list[int], places: tuple[int | str, ...] = ("final",), decoder: Decoder | None = None
) -> torch.Tensor:
    """float64 [n, d]: a target's final features over a text (the lively one's if none is given).

    Alternatively, its states at other places, concatenated.
    """
    probe = Probe(Needs(hidden=frozenset(places)))
    with torch.inference_mode():
        (decoder or toys.pair()[0].decoder).forward(Feed.causal_chain(text, 0), None, probe)
    return torch.cat([probe.hidden[place][0] for place in places], -1)


def read_alone(kind: str, text: list[int], ahead: list[int]) -> tuple[torch.Tensor, LayerStore]:
    """Return the logits [V] of the lively target's layer "eagle", "fspad" or "eagle3", and the cache.

    It reads the text and the drafted tokens `ahead`, one slot at a time: true states for the text, its own outputs from there.
    """
    decoder = toys.pair()[0].decoder
    layer, store, made = decoder.heads[kind], decoder.heads[kind].attention.store(), None
    with torch.inference_mode():
        places = fused_layers(decoder.spec.n_layers) if kind == "eagle3" else ("final",)
        features = layer.enter(feature_of(text[:-1], places))
        for slot, token in enumerate([*text[1:], *ahead]):
            f = features[slot] if slot < len(features) else made
            made = layer(f[None, None], F.embedding(torch.tensor([[token]]), decoder.embed), slot, store)[
                0, 0
            ]
            store.commit([0])
        return layer.logits(made, decoder), store


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
