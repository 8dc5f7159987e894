"""A strategy outside the package that asks for a model in a role which no shipped part asks for."""

from __future__ import annotations

import pytest

from decodescope.engine.core.component import component, param, registry
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.model.forward.feed import Feed

NAME = "second_opinion"


@component
class SecondOpinion(Strategy):
    """The token with the largest sum of logits: (1 - share) of the target's, and share of those of the model `large`."""

    title = "Second opinion"
    source = "the tests"
    uses = frozenset({"policy"})
    lossless = False
    lanes = ("large",)

    share: float = param(0.5, low=0.0, high=1.0, step=0.1, help="what the second model's logits count")

    def step(self, s: State) -> Move:
        n = len(s.tokens)
        own = s.target.forward(Feed.causal_chain([s.tokens[-1]], n - 1, s.target.decoder.device))[0, 0]  # [V]
        s.target.commit([0])
        other = s.lanes["large"].read(s.tokens, "verify")  # [V]
        emitted = [int(((1 - self.share) * own + self.share * other).argmax())]
        count, end = s.cut(emitted)
        s.tokens += emitted[:count]
        return Move(emitted[:count], ["target"] * count, end)


SecondOpinion.__module__ = NAME  # a component is named after its file


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the strategy until the test is over."""
    monkeypatch.setitem(registry("strategy"), NAME, SecondOpinion)
