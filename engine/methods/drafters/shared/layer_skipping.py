"""Layer skipping: the sub-layers of the target that may be skipped, and the draft that the target writes without them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftedToken, DraftLength
from decodescope.engine.decoding.bases.drafter import top_tokens
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Skip

SubLayer = tuple[str, int]  # "a" (attention) or "f" (feed-forward), and the layer
SKIPPED = {
    "attn": Note("set", "attention left out", "layer", "layers whose attention does not run in a draft"),
    "ffn": Note("set", "feed-forward left out", "layer", "layers whose feed-forward does not run in a draft"),
}


def inner_sub_layers(spec: ModelSpec) -> list[SubLayer]:
    """The sub-layers that may be skipped: all but those of the first and the last layer."""
    return [(kind, i) for i in range(1, spec.n_layers - 1) for kind in "af"]


def spaced_sub_layers(among: list[SubLayer], ratio: float) -> list[SubLayer]:
    """A share `ratio` of the sub-layers, evenly spaced."""
    count = round(ratio * len(among))
    return [among[int((j + 0.5) * len(among) / count)] for j in range(count)]


def skip_of(chosen: list[SubLayer]) -> Skip:
    """Convert the sub-layers `chosen` to a Skip, the sub-layers that a pass skips."""
    attn, ffn = (frozenset(i for kind, i in chosen if kind == which) for which in "af")
    return Skip(attn, ffn)


def level_width(sure: float) -> int:
    """How many nodes a level of a caterpillar gets, by the probability of its best token (SWIFT's table for greedy)."""
    if sure > 0.95:
        return 3
    if sure > 0.8:
        return 5
    if sure > 0.5:
        return 8
    return 10


def skipping_draft(
    ctx: Context,
    skip: Skip,
    length: int,
    stop: float,
    siblings: bool,
    notes: dict[str, Any] | None = None,
    schedule: DraftLength | None = None,
) -> Draft:
    """The chain that the target writes without the sub-layers `skip`.

    It has at most `length` tokens. It ends with the first token with a probability, before the sampler, below `stop`, or where
    the `schedule` ends it. siblings: under a greedy sampler, the draft adds alternatives to each chain token. The passes extend
    the target's own cache with pending rows, which are dropped. `notes` are added to the draft's.
    """
    tokens: list[int] = []
    parents: list[int] = []
    chain = -1
    laws: list[Tensor] = []
    kept: dict[int, Tensor] = {}
    us: list[float | None] = []
    state = ctx.state
    last = ctx.tokens[-1]
    greedy = ctx.sampler.greedy
    for depth in range(min(length, ctx.room)):
        feed = Feed.causal_chain([last], ctx.position - 1 + depth, ctx.target.decoder.device)
        logits = ctx.target.forward(feed, "draft", skip=skip)[0, 0]
        raw = logits.softmax(-1)
        if greedy:
            warped = ctx.sampler.warp(logits, state) if ctx.sampler.stateful else logits
            last = int(warped.argmax())
            count = level_width(float(raw[last])) if siblings else 1
            chosen = [last, *(x for x in top_tokens(warped, count) if x != last)][:count]
        else:
            laws.append(ctx.law(logits, state))
            last, u, *_ = ctx.chance.draw(laws[-1], ctx.position + depth, "draft")
            chosen = [last]
            us.append(u)
        sure = float(raw[last])
        kept |= ctx.keep_logits([chain], [logits])
        tokens += chosen
        parents += [chain] * len(chosen)
        chain = len(tokens) - len(chosen)
        if ctx.sampler.stateful:
            state = ctx.sampler.update(state, last, logits)
        go_on = schedule is None or schedule.continue_drafting(DraftedToken(last, logits))
        if sure < stop or not go_on:
            break
    ctx.target.rollback()
    scheduled = {} if schedule is None else schedule.notes()
    notes = {"attn": sorted(skip.attn), "ffn": sorted(skip.ffn), **(notes or {}), **scheduled}
    if greedy or not laws:
        return Draft(tokens, parents, source="target, layers skipped", notes=notes, logits=kept)
    rows = list(range(len(tokens)))
    return Draft.chain(
        tokens,
        kind="iid",
        q=torch.stack(laws),
        q_row=rows,
        u=us,
        source="target, layers skipped",
        notes=notes,
        logits=kept,
    )
