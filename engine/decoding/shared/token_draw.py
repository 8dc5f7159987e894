"""A token as plain decoding draws it, for what decodes several texts in one pass."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..bases.acceptance import Cursor, match_greedy, verify_tokenwise
from ..bases.sampler import Sampler
from ..values.chance import Chance
from ..values.draft import Draft


def draw_token(
    logits: Tensor, best: int, sampler: Sampler, state: Any, chance: Chance, position: int
) -> tuple[int, Any]:
    """Draw the token at `position` from logits [1, V] with the argmax `best`; also returns the sampler's state after it."""
    at = Cursor(Draft(), logits, [best], sampler, state, position)
    verdict = match_greedy(Draft(), at) if at.greedy else verify_tokenwise(Draft(), at, chance)
    assert verdict.token is not None
    return verdict.token, at.state_after(verdict.token)
