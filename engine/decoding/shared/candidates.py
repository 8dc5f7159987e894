"""Candidates: tokens of several places that one pass decides about, each drawn from its own row and with its own coins."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from decodescope.engine.core.method_view import SamplerView
from decodescope.engine.core.spec import ModelSpec

from ..bases.sampler import softmax
from ..bases.state import State


def draw_candidates(s: State, places: Sequence[int], logits: Tensor) -> tuple[Tensor, Tensor]:
    """The sampler's token for each of the `places` (positions), int64 [O], and the model's probability of it before the
    sampler, float [O]. logits: float [O, V]."""
    if s.sampler.greedy:
        candidate = s.sampler.warp(logits, s.sampler_state).argmax(-1)
    else:
        laws = softmax(s.sampler.warp(logits, s.sampler_state))
        candidate = torch.tensor([x.token for x in s.chance.draw_rows(laws, places)], device=logits.device)
    return candidate, softmax(logits).gather(-1, candidate[:, None])[:, 0]


def mask_fill_conflict(name: str, spec: ModelSpec) -> str | None:
    """Why the strategy `name` cannot fill masks with this model; None: it can."""
    if spec.mask_token is None:
        return f"{name} fills mask tokens, and {spec.name} knows none: choose a model whose config.json gives mask_token_id."
    if spec.vocab == 1:
        return f"{name} fills mask tokens with other tokens, and {spec.name} has only one token: choose another model."
    return None


def sampler_order_conflict(name: str, sampler: SamplerView) -> str | None:
    """Why the strategy `name` cannot draw places in any order from this sampler; None: it can."""
    if not sampler.stateful:
        return None
    why = f"{sampler.name} remembers what was written before a token"
    return f"{name} fills places in any order, and {why}: choose the sampler temperature."
