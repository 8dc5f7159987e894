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
    """The token at `position` by logits [1, V], whose argmax is `best`, and the sampler's state behind it."""
    at = Cursor(Draft(), logits, [best], sampler, state, position)
    verdict = match_greedy(Draft(), at) if at.greedy else verify_tokenwise(Draft(), at, chance)
    assert verdict.token is not None
    return verdict.token, at.state_after(verdict.token)
