"""Jacobi decoding: guess a whole block, read it, replace every guess by the model's choice, until nothing changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.declarations import CanvasForm, CanvasWord, DetailColumn, Sentence
from decodescope.engine.trace.details.shapes import CanvasDetail

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec


BLOCK = CanvasForm(
    title="One pass over a block",
    says=[Sentence("{settled} of {open} final after this pass")],
    where=[Sentence("{open} tokens from position {start}")],
    how="fixed point",
    test=[Sentence("{settled} of {open} final")],
    lines=[
        Sentence(
            "All tokens of the block were guessed, and one pass says what the target puts at each place."
        ),
    ],
    table="Before and after:",
    row=[Sentence(" guess {guess}, the target's choice {candidate}")],
    reasons=[
        Sentence(
            "A token is final when everything before it is: then the target has read what it would have read anyway."
        ),
        Sentence(
            "The first {held} guesses are the target's choice, and place {held + 1} was read behind them alone.",
            where="held <= open - 1",
        ),
    ],
    sums=[Sentence("{settled} of {open} are final after this pass")],
    closing=[
        Sentence(
            "The other {open - settled} choices are the guesses of the next pass.",
            where="settled <= open - 1",
        )
    ],
    card="Fixed point, one pass",
    heads=["guess", "read"],
    hint=[
        Sentence(
            "One pass replaces every guess by the model's choice after the guesses before it. Leading guesses that come "
            "out as they went in are final, and so is the token after them."
        )
    ],
    place=[
        Sentence("confirmed", given={"stands": True}, where="guess == candidate"),
        Sentence("final", given={"stands": True}),
        Sentence("same, not yet sure", where="guess == candidate"),
        Sentence("new guess"),
    ],
    drawn="chain",
    run="guess == candidate",
    words={"final": CanvasWord("•", "final")},
    columns=[DetailColumn("guess", "token", "summary")],
    level="summary",
    check="fixed_point",
    counted="passes over a block",
)


@component
class Jacobi(Strategy):
    """Decode a block greedily by fixed-point iteration.

    A block y_1..y_b is the triangular system y_i = argmax p(. | y_<i), and one pass replaces all guesses at once. A leading
    guess that the pass confirms is final, and is committed. The first token after the confirmed ones is final too, so a block
    takes at most b passes. Blocks follow each other (Gauss-Seidel between blocks): b = 1 is autoregressive decoding.

    A block of 0 is as long as the answer may get: one system for all of it. With `guessed_length` above 0 (hybrid
    Gauss-Seidel-Jacobi) the blocks end there, and the rest of the answer is decoded plainly, token by token. A leading token is
    committed as soon as it is final. So the text ends with the first pass in which its end is final. The authors look for the
    end in converged blocks only; the text is the same, and this code takes no more passes.

    The text is the greedy text for any first guesses. Each pass is one step of the trace.
    """

    title = "Jacobi"
    source = "Santilli et al. 2023, arXiv:2305.10427, algorithms 1 to 3; teelinsan/parallel-decoding, src/ipi/decoders"
    uses = frozenset({"prompt_compression", "policy", "kv_compression", "sampler"})
    details: ClassVar = {"fixed_point": BLOCK}

    block: int = param(
        8,
        low=0,
        high=64,
        unit="tokens",
        help="size of a block that is solved at once (b); 0: one block for the whole answer",
    )
    initial_guess: str = param(
        "last", choices=("last", "random", "zero", "prompt", "pad"),
        help="initial guesses: last token, random ids, id 0, tokens of the prompt, or padding token",
    )  # fmt: skip
    guessed_length: int = param(
        0,
        low=0,
        high=65536,
        unit="tokens",
        help="guessed length of the answer; what follows is decoded plainly; 0: no guess",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.initial_guess == "pad" and spec.pad_token is None:
            return f"{spec.name} names no padding token: let jacobi guess last, random, zero or prompt."
        if method.sampler.greedy and not method.sampler.stateful:
            return None
        return "jacobi solves for the greedy text and cannot draw or remember: choose the sampler greedy, or draft_verify."

    def begin(self, s: State) -> None:
        s.scratch = []

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        if not s.scratch:
            s.scratch = self.first_guesses(s, self.block_size(s))
        guesses: list[int] = s.scratch
        root, position = s.tokens[-1], len(s.tokens)
        drafted = clock.mark()
        feed = Feed.causal_chain([root, *guesses[:-1]], position - 1, s.target.decoder.device)
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
        places, behind = np.arange(position, position + len(after), dtype=np.int32), position + len(after)
        block = CanvasDetail(
            "fixed_point", position, len(after), [position, behind], places, np.array(after, np.int32),
            places[:fixed].tolist(), after[:fixed], ["final"] * fixed,
            columns={"guess": np.array(guesses, np.int32)},
        )  # fmt: skip
        return plain_move(s, emitted, end, started, verified, drafted=drafted, logits=logits, details=[block])

    def block_size(self, s: State) -> int:
        """The number of tokens of the next block."""
        left = s.room + 1
        if self.guessed_length:
            left = min(left, max(1, self.guessed_length - (len(s.tokens) - s.prompt)))
        return min(self.block or left, left)

    def first_guesses(self, s: State, count: int) -> list[int]:
        """The guesses that a block of `count` tokens begins with."""
        if self.initial_guess in ("random", "prompt"):
            ids = range(s.target.decoder.vocab) if self.initial_guess == "random" else s.tokens[: s.prompt]
            return [ids[int(s.chance.uniform(len(s.tokens) + i, "init") * len(ids))] for i in range(count)]
        fill = {"last": s.tokens[-1], "zero": 0, "pad": s.target.decoder.spec.pad_token}[self.initial_guess]
        assert fill is not None
        return [fill] * count
