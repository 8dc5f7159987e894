"""A rule alone: its verdict on a chain, from given distributions."""

from __future__ import annotations

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.acceptance import AcceptanceRule, Cursor
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft, Verdict
from decodescope.engine.methods.samplers.temperature import Temperature


def judge(rule: AcceptanceRule, p: Tensor, q: Tensor, tokens: list[int], chance: Chance) -> Verdict:
    """The verdict on a chain of `tokens` drawn from the rows of q [N, V]; p [N + 1, V] are the target's distributions."""
    draft = Draft.chain(tokens, kind="iid", q=q, q_row=list(range(len(tokens))), u=[None] * len(tokens))
    logits = p.log()
    at = Cursor(draft, logits, logits.argmax(-1).tolist(), Temperature(temperature=1.0), None, 0)
    return rule.verify(draft, at, chance)


def rows(*laws: list[float]) -> Tensor:
    """float64 [R, V], one distribution per row."""
    return torch.tensor(laws, dtype=torch.float64)
