"""Jacobi decoding: guess a whole block, read it, replace every guess by the model's choice, until nothing changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodescope.engine.core.company import Company
from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.state import Move, State
from decodescope.engine.decoding.strategy import Strategy
from decodescope.engine.model.feed import Feed
from decodescope.engine.trace.events import Iteration

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec


@component
class Jacobi(Strategy):
    """Greedy decoding of a block y_1..y_b as the triangular system y_i = argmax p(. | y_<i), solved by fixed-point
    iteration: one pass replaces all guesses at once. A leading guess that the pass confirms is final, and is committed;
    the first token after the confirmed ones is final too, so a block takes at most b passes. Blocks follow each other
    (Gauss-Seidel between blocks): b = 1 is autoregressive decoding.

    The text is the greedy text whatever the first guesses are. Each pass is one step of the trace.
    """

    title = "Jacobi"
    source = "Santilli et al. 2023, arXiv:2305.10427, algorithms 1 and 2"
    uses = frozenset({"context", "policy", "codec", "sampler"})

    block: int = param(8, low=1, high=64, unit="tokens", help="b, tokens solved together")
    guess: str = param("last", choices=("last", "random", "zero"), help="first guesses: the last token, random ids, id 0")

    def refuse(self, method: Company, spec: ModelSpec) -> str | None:
        if method.sampler.greedy and not method.sampler.stateful:
            return None
        return "jacobi solves for the greedy text and cannot draw or remember: choose the sampler greedy, or draft_verify."

    def begin(self, s: State) -> None:
        s.scratch = []

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        if not s.scratch:
            s.scratch = self.first(s, min(self.block, s.room + 1))
        guesses: list[int] = s.scratch
        root, position = s.tokens[-1], len(s.tokens)
        drafted = clock.mark()
        feed = Feed.causal([root, *guesses[:-1]], position - 1, s.target.decoder.device)
        logits = s.target.forward(feed)[0]
        after = s.target.best
        fixed = 1
        while fixed < len(guesses) and guesses[fixed - 1] == after[fixed - 1]:
            fixed += 1
        verified = clock.mark()
        emitted, (count, end) = after[:fixed], s.cut(after[:fixed])
        emitted = emitted[:count]
        s.target.commit(list(range(count)))
        s.tokens += emitted
        s.scratch = after[fixed:]
        return Move(
            emitted,
            ["target"] * count,
            end,
            logits=logits,
            draft_us=clock.elapsed_us(started, drafted),
            verify_us=clock.elapsed_us(drafted, verified),
            commit_us=clock.elapsed_us(verified, clock.mark()),
            iteration=Iteration(position, after, fixed, guesses),
        )

    def first(self, s: State, count: int) -> list[int]:
        """The guesses that a block of `count` tokens begins with."""
        if self.guess == "random":
            vocab = s.target.decoder.vocab
            return [int(s.chance.uniform(len(s.tokens) + i, "init") * vocab) for i in range(count)]
        return [s.tokens[-1] if self.guess == "last" else 0] * count
