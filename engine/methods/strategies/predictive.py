"""Predictive pipelined decoding: an early exit guesses the next token, whose layers start before the current token is done."""

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

from .shared.pipeline import DROPPED, GOES_ON, READ, TICKS, ExitGuess, Pipeline, TokensInFlight, guesses_feed
from .shared.rounds import judge_draft

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec


@component
class Predictive(Strategy):
    """Guess the next token at an early exit, and start its layers before the current token has finished.

    When the current token has run d of M layers, the exit there names the k likeliest next tokens. k branches begin with these,
    in the M - d ticks in which the token itself runs its last layers. Each branch is one row in layers 0 to M - d - 1, which
    sees the text, that token and itself. Its keys, values and state are kept. Then the target decides. If its token is one of
    the k, that branch continues as the next token, M - d layers ahead, and the others are dropped. Otherwise all are dropped,
    and the next token begins at layer 0. So a step writes one token, and the text is the target's: a branch never decides.
    Under a random sampler, the guesses are tried one after the other against the rest of the target's distribution; the result
    is a draw from it.

    Ticks are SIMULATED. In one tick each token in flight runs one layer, for any number of tokens, as on k + 1 processors that
    share the cache. Here a step runs its work in turn: the rest of the token's layers in one pass, the branches' first layers
    in another. The counted work is real: these passes ran, and no layer of a kept branch runs again. The exception is a record
    that needs data from inside a pass: then it runs again, and the ticks do not change. If a branch had begun for a share r of
    the tokens, a token takes M - r (M - d) ticks. The k branches add k (M - d) layers to each.

    Notes, `predictive`: `exit`, d; `head`, the layers that the token had run in advance; `flight`, the ticks in which it and
    each branch ran; `sure`, the exit's probability of each guess; `ticks` of the step, and their sum, `clock`, with that of
    plain decoding, `plain`; `work`, layers run by all tokens of the step; `simulated`, the meaning of a tick. A check derives
    them again from passes and verdicts, and `clock` from M, d and r.

    In the layers below M - d, a branch reads the entries that the token before it left there. So the exit is in the middle or
    above. With a lower exit, a branch would reach its own exit before the target had decided on it. The paper's pipeline has
    one stage; that of `speed` has more.
    """

    title = "Predictive pipeline (ticks)"
    source = "Yang et al. 2023, arXiv:2307.05908, sections 3 and 4 [the algorithm is recalled]"
    uses = frozenset({"prompt_compression", "sampler"})
    tells: ClassVar[dict[str, Note]] = TICKS

    layers: int = param(
        0,
        low=0,
        high=512,
        unit="layers",
        help="number of layers before the exit that guesses the next tokens (d); 0: half of them",
    )
    branches: int = param(
        3, low=1, high=16, unit="tokens", help="number of guessed next tokens that start early (k)"
    )
    heads: str = param(
        "none",
        choices=("none", "exits"),
        help="how an exit reads its state: with the final norm alone, or with trained exit heads",
    )

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "ticks": "branches"}

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.heads != "none" and (no := missing_reason("exits", spec, f"{self.name}.heads = none")):
            return no
        count, d = spec.n_layers, self.exit_layer(spec)
        if 2 * d >= count > d:
            return None
        if count < 2:
            return f"predictive begins a token while another's last layers run, and {spec.name} has one; choose draft_verify."
        reach = f"choose {-(-count // 2)} to {count - 1}, or 0 for the middle"
        return f"predictive.layers = {d}: {spec.name} has {count} layers, and the exit must be in the middle or above; {reach}."

    def exit_layer(self, spec: ModelSpec) -> int:
        """d: the number of layers that a token has run when the exit guesses the next ones."""
        return self.layers or -(-spec.n_layers // 2)

    def begin(self, s: State) -> None:
        s.scratch = Pipeline()

    def step(self, s: State) -> Move:
        lane = s.target
        clock = s.target.executor
        pipe = s.scratch
        count = lane.decoder.spec.n_layers
        d = self.exit_layer(lane.decoder.spec)
        position = len(s.tokens)
        started, root = clock.mark(), s.tokens[-1]
        head = pipe.layers_done(s)
        logits, guess = self._read_root(s, pipe.resume_root(s), d)
        reached = clock.mark()
        draft = Draft(guess.tokens, [ROOT] * len(guess.tokens), source="target, early exit")
        draft.logits = dict(zip([ROOT], guess.logit_rows, strict=False))
        states = lane.states_before(guesses_feed(draft, position, lane.decoder.device), count - d)
        begun = clock.mark()
        at = Cursor(draft, logits, lane.best, s.sampler, s.sampler_state, position)
        verdict = judge_draft(draft, at, s.chance)
        right = verdict.path[0] if verdict.path else None
        pipe.ahead = (
            None
            if right is None
            else TokensInFlight.from_branch(lane, [*s.tokens, draft.tokens[right]], states, right)
        )
        for store in lane.cache.layers[: count - d]:
            # the branches: the surviving ones are stored separately, and restored in the next step
            store.rollback(1)
        verified = clock.mark()
        emitted, origins, end, verdict, before = commit_verdict(s, draft, verdict, at)
        fates = [GOES_ON if i == right else DROPPED for i in range(len(draft))]
        others = [(i + 1, count - d, *x) for i, x in enumerate(zip(draft.tokens, fates, strict=True))]
        draft.notes = {
            self.name: pipe.tick(head, d, count, [(0, count - head, root, READ), *others])
            | {"sure": guess.sure}
        }
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

    def _read_root(self, s: State, feed: Feed, d: int) -> tuple[Tensor, ExitGuess]:
        """The target's logits [1, V] of the root, from one pass, and the guesses of the exit in it."""
        guess = ExitGuess(s, d, self.branches, self.heads != "none")
        logits = s.target.forward(feed, depth=guess)[0]
        guess.record_test()
        return logits, guess
