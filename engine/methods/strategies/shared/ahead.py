"""Ahead: tokens that begin before the one in front of them has ended; what `predictive` is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from decodescope.engine.decoding.depth import Depth
from decodescope.engine.decoding.draft import Draft
from decodescope.engine.decoding.lane import Lane
from decodescope.engine.decoding.state import State
from decodescope.engine.heads.exits import ExitHeads
from decodescope.engine.model.feed import Feed
from decodescope.engine.model.partial import Answer


class Guess(Depth):
    """No rule: in front of layer d a pass is asked for its likeliest next tokens, and goes on.

    tokens: the guesses, likeliest first;  sure: of each, its probability there
    """

    def __init__(self, s: State, d: int, count: int, heads: ExitHeads | None):
        self._state, self._at, self._count, self._heads = s, d, count, heads
        self.tokens, self.sure = list[int](), list[float]()

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        if layer == self._at:
            if self._heads is not None:
                cast(Answer, read).by(partial(self._heads, layer=layer))
            s, logits = self._state, read()[0, 0]
            warped = s.sampler.warp(logits, s.sampler_state) if s.sampler.stateful else logits
            best = warped.topk(min(self._count, len(warped)))
            self.tokens = best.indices[best.values > -torch.inf].tolist()
            self.sure = [round(x, 4) for x in logits.softmax(-1)[self.tokens].tolist()]
        return False


@dataclass
class Ahead:
    """A branch that turned out right, and what its first layers made of it.

    text: prompt and text, to its token;  kv: by layer float [2, B, H_kv, 1, D];  states: float [1, 1, d_model], which enter
    the layer above those
    """

    text: list[int]
    kv: list[Tensor]
    states: Tensor

    @classmethod
    def of(cls, lane: Lane, text: list[int], states: Tensor, branch: int) -> Ahead:
        """That of branch number `branch`, whose rows are pending behind the root's in the layers that `states` left."""
        stores = [store for store in lane.cache.layers if store.m > 1]
        rows = [store.newest(states.shape[1])[:, :, :, branch : branch + 1].clone() for store in stores]
        return cls(text, rows, states[:, branch : branch + 1])


@dataclass
class Pipeline:
    """What goes from one step to the next: the branch that was right, ticks so far, and tokens that were read."""

    ahead: Ahead | None = None
    clock: int = 0
    tokens: int = 0

    def head(self, s: State) -> int:
        """Layers that the root has run already. A text that was changed meanwhile has no root that began."""
        if self.ahead is not None and self.ahead.text != s.tokens:
            self.ahead = None
        return 0 if self.ahead is None else len(self.ahead.kv)

    def resumed(self, s: State) -> Feed:
        """The root as a pass that goes on where its branch stands, whose rows are pending again; or from layer 0, where
        somebody asks for what happens in the layers below."""
        feed = Feed.causal([s.tokens[-1]], len(s.tokens) - 1, s.target.decoder.device)
        if self.ahead is not None and not s.target.needs:
            for store, kv in zip(s.target.cache.layers, self.ahead.kv, strict=False):
                store.append(kv, feed.positions)
            feed.enter, feed.states = len(self.ahead.kv), self.ahead.states
        return feed

    def tick(self, head: int, d: int, layers: int, branches: int) -> dict[str, Any]:
        """Go on by a step whose root had `head` layers behind it; figures for the trace."""
        ticks, beyond = layers - head, layers - d
        began, self.clock, self.tokens = self.clock, self.clock + ticks, self.tokens + 1
        return {
            "exit": d,
            "head": head,
            "root": [began, self.clock],
            "branches": [self.clock - beyond, self.clock],
            "ticks": ticks,
            "clock": self.clock,
            "plain": layers * self.tokens,
            "work": ticks + branches * beyond,
            "simulated": "one layer of every token in flight",
        }


def beside(draft: Draft, position: int, device: torch.device) -> Feed:
    """The guesses of one position side by side, behind the root, which is pending: each sees that and itself."""
    k = len(draft)
    tokens = torch.tensor([draft.tokens], device=device)
    visible = torch.cat([torch.ones(k, 1), torch.eye(k)], 1).bool()[None].to(device)
    return Feed(tokens, torch.full_like(tokens, position), visible, highest=position)
