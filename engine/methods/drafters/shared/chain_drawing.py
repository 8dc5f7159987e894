"""Chains of tokens that are chosen or drawn from logits: all at once, or each given those before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import ROOT, Draft

# what these chains note of each token
SURE = Note("node", "sure", what="the largest probability of the guess, before the sampler")


def draw_together(ctx: Context, logits: Tensor, source: str) -> Draft:
    """A chain whose places do not depend on each other: token i is from row i of logits [R, V].

    One operation for all, unless the sampler's state depends on the tokens.
    """
    if ctx.sampler.stateful:
        rows = iter(logits)
        return draw_in_turn(ctx, lambda _: next(rows, None), source)
    if ctx.sampler.greedy:
        tokens = logits.argmax(-1).tolist()
        return _finished_chain(ctx, Draft.chain(tokens, source=source), logits)
    laws = ctx.law(logits, ctx.state)
    draws = ctx.chance.draw_rows(laws, range(ctx.position, ctx.position + len(laws)), "draft")
    draft = _drawn_chain([x.token for x in draws], laws, [x.u for x in draws], source)
    return _finished_chain(ctx, draft, logits)


def draw_in_turn(ctx: Context, next_logits: Callable[[Sequence[int]], Tensor | None], source: str) -> Draft:
    """A chain, token by token. next_logits: what the next token is drawn from, float [V], given the drafted ones; None ends.

    It ends too where the sampler permits none of the tokens that have a logit, as a grammar may.
    """
    sampler, state = ctx.sampler, ctx.state
    tokens, us = list[int](), list[float | None]()
    laws, rows = list[Tensor](), list[Tensor]()
    while (logits := next_logits(tokens)) is not None:
        if sampler.stateful and not bool((sampler.warp(logits, state) > -torch.inf).any()):
            break
        rows.append(logits)
        if sampler.greedy:
            tokens.append(int((sampler.warp(logits, state) if sampler.stateful else logits).argmax()))
        else:
            laws.append(ctx.law(logits, state))
            token, u, *_ = ctx.chance.draw(laws[-1], ctx.position + len(tokens), "draft")
            tokens.append(token)
            us.append(u)
        state = sampler.update(state, tokens[-1], logits) if sampler.stateful else state
    if not tokens:
        return Draft(source=source)
    read = torch.stack(rows)
    greedy = sampler.greedy
    draft = (
        Draft.chain(tokens, source=source) if greedy else _drawn_chain(tokens, torch.stack(laws), us, source)
    )
    return _finished_chain(ctx, draft, read)


def largest_probabilities(logits: Tensor) -> dict[str, Any]:
    """The note `sure`: of each row of logits [R, V] the largest probability, before the sampler."""
    return {"sure": [round(x, 4) for x in logits.softmax(-1).amax(-1).tolist()]}


def _finished_chain(ctx: Context, draft: Draft, logits: Tensor) -> Draft:
    """The chain with what is recorded of the logits [R, V] that its tokens are from."""
    draft.notes = largest_probabilities(logits)
    draft.logits = ctx.keep_logits([ROOT, *range(len(draft) - 1)], logits)
    return draft


def _drawn_chain(tokens: list[int], laws: Tensor, us: Sequence[float | None], source: str) -> Draft:
    rows = list(range(len(tokens)))
    return Draft.chain(tokens, kind="iid", q=laws, q_row=rows, u=list(us), source=source)
