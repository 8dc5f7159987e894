"""SPEED: early layers guess next tokens, so several tokens are in the layers at once, each behind the one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.commit_verdict import commit_verdict
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.files import missing_reason

from .shared.pipeline import DROPPED, GOES_ON, READ, TICKS, ExitGuess, Pipeline, TokensInFlight
from .shared.rounds import judge_draft

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec


@component
class Speed(Strategy):
    """Keep several guessed tokens in flight, each a few layers behind the one before it.

    A token that has run e of M layers names its likeliest next token at the exit there, and this begins in the next tick. After
    e layers it names the next one, and so on. So up to M / e tokens are in flight, each e layers behind the one before it. In
    every layer that it reaches, it finds that token's keys and values. When the first has run all M layers, the target's choice
    is known. If the guess was right, the next token has already run M - e layers, and the others stay in flight. Otherwise all
    of them are dropped, and the next token begins at layer 0. Only the whole target decides: a step writes one token of its
    text. Under a random sampler, the guess is judged against the target's distribution.

    Ticks are SIMULATED: in one tick each token in flight runs one layer, as on M / e processors. Here a step runs this parallel
    work in turn: the first token's layers in one pass, then a span of layers for each of the others. No layer of a kept token
    runs again. The exception is a record that needs data from inside a pass: then the first token runs again, and the ticks do
    not change. T tokens take M + (T - 1) e ticks if all guesses are right, and M T if none is. With a share r of tokens that
    had begun, a token takes M - r (M - e) ticks.

    The authors' decoder is trained with blocks of layers that share weights. Tokens at different depths share one load of these
    weights, which saves their time. Here the layers are unshared: a tick loads all layers in use, and only the count of ticks
    shows what the pipeline would save. A token names one guess; the authors' may name several [recalled]. `predictive` is the
    pipeline of one stage with several guesses. Its notes are recorded here too.
    """

    title = "SPEED (pipeline, ticks)"
    source = "Hooper et al. 2023, arXiv:2310.12072, speculative pipelined execution, abstract"
    uses = frozenset({"prompt_compression", "sampler"})
    tells: ClassVar[dict[str, Note]] = TICKS

    layers: int = param(
        2,
        low=1,
        high=512,
        unit="layers",
        help="number of layers that a token runs before it guesses the next token (e)",
    )
    heads: str = param(
        "none",
        choices=("none", "exits"),
        help="how an exit reads its state: with the final norm alone, or with trained exit heads",
    )

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "ticks": "chain"}

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.heads != "none" and (no := missing_reason("exits", spec, f"{self.name}.heads = none")):
            return no
        if self.layers < spec.n_layers:
            return None
        if spec.n_layers == 1:
            return f"speed guesses below the last layer, and {spec.name} has one; choose draft_verify."
        return f"speed.layers = {self.layers}: {spec.name} has {spec.n_layers} layers; choose 1 to {spec.n_layers - 1}."

    def begin(self, s: State) -> None:
        s.scratch = Pipeline()

    def step(self, s: State) -> Move:
        lane = s.target
        clock = s.target.executor
        pipe = s.scratch
        count = lane.decoder.spec.n_layers
        e = self.layers
        position = len(s.tokens)
        started, head = clock.mark(), pipe.layers_done(s)
        ahead = pipe.ahead or TokensInFlight(s.tokens, [], [])
        tokens = [*ahead.tokens]
        sure = [*ahead.sure]
        rows = [*ahead.rows]
        root = s.tokens[-1]
        guess = None if tokens else ExitGuess(s, e, 1, self.heads != "none")
        logits = lane.forward(pipe.resume_root(s), depth=guess)[0]
        if guess is not None:
            guess.record_test()
            tokens, sure = guess.tokens, guess.sure
            rows = guess.logit_rows
        reached = clock.mark()
        ahead.restore_pending(lane)
        states, ran = self._advance(s, tokens, sure, rows, ahead.states[1:], head)
        begun = clock.mark()
        draft = Draft(tokens[:1], [ROOT], source="target, early exit", named=tokens[1:])
        draft.logits = dict(zip([ROOT], rows, strict=False))
        at = Cursor(draft, logits, lane.best, s.sampler, s.sampler_state, position)
        verdict = judge_draft(draft, at, s.chance)
        right = bool(verdict.path)
        pipe.ahead = (
            TokensInFlight.from_chain(lane, [*s.tokens, tokens[0]], states, tokens[1:], sure[1:], rows[1:])
            if right
            else None
        )
        for store in lane.cache.layers[: count - e]:
            store.rollback(1)  # the surviving ones are stored separately, and restored in the next step
        verified = clock.mark()
        emitted, origins, end, verdict, before = commit_verdict(s, draft, verdict, at)
        lanes = -(-count // e)  # a token keeps its lane while it is in flight
        fate = GOES_ON if right else DROPPED
        others = [((position + j) % lanes, n, tokens[j], fate) for j, n in enumerate(ran)]
        notes = pipe.tick(head, e, count, [((position - 1) % lanes, count - head, root, READ), *others])
        draft.notes = {self.name: notes | {"sure": sure[:1]}}
        branch_us = clock.elapsed_us(reached, begun)
        verify_us = clock.elapsed_us(started, verified) - branch_us
        commit_us = clock.elapsed_us(verified, clock.mark())
        return Move(
            emitted,
            origins,
            end,
            draft,
            verdict,
            logits,
            branch_us,
            verify_us,
            commit_us,
            sampler_state=before,
        )

    def _advance(
        self,
        s: State,
        tokens: list[int],
        sure: list[float],
        rows: list[Tensor],
        states: list[Tensor],
        head: int,
    ) -> tuple[list[Tensor], list[int]]:
        """Run the guessed `tokens` through as many layers as the root has run in this step, one token after the other.

        The tokens that they name begin as well, and join `tokens`, `sure` and, if the step is recorded, `rows`, the logits that
        they are from. states: those of the tokens that began before.
        Returns the states of all tokens that have begun, and the layers that each has run in this step.
        """
        lane = s.target
        count = s.target.decoder.spec.n_layers
        e = self.layers
        guess = ExitGuess(s, e, 1, self.heads != "none")
        left = list[Tensor]()
        ran = list[int]()
        for j, goal in enumerate(range(count - e, 0, -e)):
            enter = max(0, goal - e) if head else 0
            x = states[j] if enter else None
            ran.append(goal - enter)
            for until in (e, goal) if enter < e < goal else (goal,):
                feed = Feed.causal_chain([tokens[j]], len(s.tokens) + j, lane.decoder.device)
                feed.enter, feed.states = enter, x
                enter, x = until, lane.states_before(feed, until)
                if until == e:
                    guess.ask(x)
                    tokens.append(guess.tokens[0])
                    sure.append(guess.sure[0])
                    rows += guess.logit_rows
            assert x is not None
            left.append(x)
        return left, ran
