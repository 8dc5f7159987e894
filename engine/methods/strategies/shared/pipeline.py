"""Pipeline: tokens that begin before the token in front of them has ended; shared by `predictive` and `speed`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.state import State
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.exits import ExitHeads
from decodescope.engine.model.layers.partial_pass import LazyLogits

# the state of a token in flight at the end of a step
READ = "read"
GOES_ON = "goes on"
DROPPED = "dropped"
TICKS = {
    "flight": Note(
        "track", "pipeline", "ticks", "in each a token runs a layer", rows=[READ, GOES_ON, DROPPED]
    ),
    "exit": Note("series", "exit", "layers", "that a token has run when the next one is guessed"),
    "head": Note("series", "ahead", "layers", "of the token that had run before it was known"),
    "sure": Note("node", "sure", what="probability of the guess at the exit, before the sampler"),
    "ticks": Note("series", "ticks", "ticks", "of the step: layers that the token ran, one a tick"),
    "clock": Note("series", "ticks so far", "ticks", line="plain"),
    "plain": Note("series", "plain decoding", "ticks", "of as many tokens, one layer after another"),
    "work": Note("series", "work", "layers", "run in the step by the token and by all guesses"),
    "simulated": Note("set", "a tick", what="what the ticks of this simulated clock are"),
}  # notes of a strategy with a simulated clock of layers (engine/trace/checks/pipeline.py)


class ExitGuess(AdaptiveDepth):
    """Guess the likeliest next tokens in front of layer d, without ending the pass; `ask` does the same for a state.

    tokens: the guesses, likeliest first;  sure: the probability of each at the exit
    logit_rows: the logits [V] that they are from, one row, before the sampler; none if the step is not recorded
    """

    def __init__(self, s: State, d: int, count: int, trained: bool):
        self._state = s
        self._at = d
        self._count = count
        self._heads = cast(ExitHeads, s.target.decoder.heads["exits"]) if trained else None
        self.tokens, self.sure = list[int](), list[float]()
        self.logit_rows = list[Tensor]()

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        if layer == self._at:
            self._read_guesses(x, cast(LazyLogits, read))
        return False

    def ask(self, x: Tensor) -> None:
        """Guess from the state x [1, 1, d_model] that enters layer d, from the lane's last pass."""
        decoder = self._state.target.decoder
        self._read_guesses(x, decoder.lazy_logits(x))
        self.record_test(logits=1)

    def _read_guesses(self, x: Tensor, answer: LazyLogits) -> None:
        if self._heads is not None:
            answer.use_norm(partial(self._heads, layer=self._at))
        s, logits = self._state, answer()[0, 0]
        self.logit_rows = [logits] if s.target.shown else []
        warped = s.sampler.warp(logits, s.sampler_state) if s.sampler.stateful else logits
        best = warped.topk(min(self._count, len(warped)))
        self.tokens = best.indices[best.values > -torch.inf].tolist()
        self.sure = [round(x, 4) for x in logits.softmax(-1)[self.tokens].tolist()]

    def record_test(self, logits: int | None = None) -> None:
        """Record the test in the lane's last pass; logits: its unembedded rows, if not all."""
        record = self._state.target.passes[-1]
        record.tests = [self._at]
        record.asks = "head"
        record.logits = logits
        record.rank = None if self._heads is None else self._heads.shape["rank"]


@dataclass
class TokensInFlight:
    """Guessed tokens that have begun behind a text, with the keys, values and states of the layers that they have run.

    - text: prompt and text, up to the first of them;  tokens, sure: the following ones, and their probabilities at the exit
    - rows: the logits [V] that each of `tokens` is from, if they are recorded
    - kv: by layer float [2, B, H_kv, m, D], of the first m that have run it;  states: float [1, 1, d_model] of each that has
      run a layer, which enter the layer above
    """

    text: list[int]
    kv: list[Tensor]
    states: list[Tensor]
    tokens: list[int] = field(default_factory=list)
    sure: list[float] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)

    @classmethod
    def from_branch(cls, lane: Lane, text: list[int], states: Tensor, at: int) -> TokensInFlight:
        """Take branch number `at` of several parallel ones; their rows are pending behind the root's, in the layers of
        `states`.
        """
        stores = [store for store in lane.cache.layers if store.m > 1]
        rows = [store.newest_rows(states.shape[1])[:, :, :, at : at + 1].clone() for store in stores]
        return cls(text, rows, [states[:, at : at + 1]])

    @classmethod
    def from_chain(
        cls,
        lane: Lane,
        text: list[int],
        states: Sequence[Tensor],
        tokens: list[int],
        sure: list[float],
        rows: list[Tensor],
    ) -> TokensInFlight:
        """Take a chain of tokens; its entries are pending behind the root's."""
        kv = [store.newest_rows(store.m - 1).clone() for store in lane.cache.layers if store.m > 1]
        return cls(text, kv, [*states], tokens, sure, rows)

    def restore_pending(self, lane: Lane) -> None:
        """Make all but the first pending again, behind it."""
        for store, kv in zip(lane.cache.layers, self.kv, strict=False):
            if (count := kv.shape[3] - 1) > 0:
                at = torch.arange(len(self.text), len(self.text) + count, device=kv.device)
                store.append(kv[:, :, :, 1:], at[None])


@dataclass
class Pipeline:
    """The state between steps: tokens in flight that were right so far; ticks, tokens read and layers run so far."""

    ahead: TokensInFlight | None = None
    clock: int = 0
    tokens: int = 0
    work: int = 0

    def layers_done(self, s: State) -> int:
        """The number of layers that the root has run already; 0 if the text was changed in the meantime."""
        if self.ahead is not None and self.ahead.text != s.tokens:
            self.ahead = None
        return 0 if self.ahead is None else len(self.ahead.kv)

    def resume_root(self, s: State) -> Feed:
        """A pass that continues the root from its layer, with its rows pending again; or from layer 0, if a part needs data
        from the layers below.
        """
        feed = Feed.causal_chain([s.tokens[-1]], len(s.tokens) - 1, s.target.decoder.device)
        if self.ahead is not None and not s.target.needs:
            for store, kv in zip(s.target.cache.layers, self.ahead.kv, strict=False):
                store.append(kv[:, :, :, :1], feed.positions)
            feed.enter, feed.states = len(self.ahead.kv), self.ahead.states[0]
        return feed

    def tick(
        self, head: int, exit: int, layers: int, flight: Sequence[tuple[int, int, int, str]]
    ) -> dict[str, Any]:
        """Count a step with a root that had run `head` of the layers; return the figures for the trace.

        flight: for each token of the step, the root first: its lane, the layers that it ran, its id and its outcome.
        """
        ticks, work = layers - head, sum(ran for _, ran, _, _ in flight)
        self.clock += ticks
        self.tokens += 1
        self.work += work
        return {
            "exit": exit,
            "head": head,
            "ticks": ticks,
            "clock": self.clock,
            "plain": layers * self.tokens,
            "work": work,
            "flight": [
                [lane, self.clock - ran, self.clock, token, fate] for lane, ran, token, fate in flight
            ],
            "simulated": "one layer of every token in flight",
        }


def guesses_feed(draft: Draft, position: int, device: torch.device) -> Feed:
    """A pass with the guesses of one position in parallel, behind the pending root; each sees the root and itself."""
    k = len(draft)
    tokens = torch.tensor([draft.tokens], device=device)
    visible = torch.cat([torch.ones(k, 1), torch.eye(k)], 1).bool()[None].to(device)
    return Feed(tokens, torch.full_like(tokens, position), visible, highest=position)
