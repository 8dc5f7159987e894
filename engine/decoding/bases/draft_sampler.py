"""DraftSampler: the sampler of a draft whose temperature is not the target's."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from ..values.alphabet import Alphabet
from .sampler import Sampler


class DraftSampler(Sampler):
    """The target's sampler at the draft's own temperature T: q(x) is proportional to exp(t w(x) / T).

    w are the logits that the target's sampler `of` returns, and t is the temperature in it (1 if it has none). After a plain
    temperature this is softmax(z / T) of the draft model's logits z. A token that the target's sampler removes stays removed:
    the target could never keep it. T = 0 is greedy: a draft is then chosen without chance. Its state is that of `of`.
    """

    def __init__(self, of: Sampler, temperature: float):
        self._of = of
        self._greedy = temperature == 0
        heats = [stage.divisor for stage in of.in_order if stage.divisor is not None]
        self._scale = 1.0 if self._greedy else math.prod(heats) / temperature
        self.stateful = of.stateful  # type: ignore[misc] # that of the sampler inside
        self.reads_logits = of.reads_logits  # type: ignore[misc]

    @property
    def in_order(self) -> list[Sampler]:
        return self._of.in_order

    @property
    def greedy(self) -> bool:
        return self._greedy

    def start(self, prompt: list[int], vocab: int, alphabet: Alphabet | None = None) -> Any:
        return self._of.start(prompt, vocab, alphabet)

    def warp(self, logits: Tensor, state: Any) -> Tensor:
        warped = self._of.warp(logits, state)
        return warped if self._greedy else warped * self._scale

    def update(self, state: Any, token: int, logits: Tensor) -> Any:
        return self._of.update(state, token, logits)
