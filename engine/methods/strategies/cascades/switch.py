"""Switch: a small and a large model take turns in writing one text, token by token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from decodescope.engine.core.component import component
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.decoding.bases.router import JudgedBlock, WrittenToken
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.looks import Look
from decodescope.engine.trace.details.turns import LANES, ORIGINS, Size, kept_count

from ..shared.turns import prefill_model, router_conflict, write_ahead, write_token

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec


@dataclass
class _TurnState:
    """The model that writes, how many tokens it has made in a row, and the router's scores so far."""

    active: Size
    stay: int = 0
    scores: list[float] = field(default_factory=list)


@component
class SwitchModels(Strategy):
    """A router chooses between a large model (the target) and a small one (the role draft) for each turn.

    Each model has its own cache. It reads nothing before its first turn, not even the prompt, and then catches up, in one
    block, on what the other one wrote. A step is a token drawn from the current model's distribution. With a router that lets
    the large model judge, a step is the small model's block and the large model's pass over it.
    """

    title = "Switching models"
    source = "Simonds 2025, arXiv:2502.06833; Kim et al. 2023, arXiv:2302.07863"
    uses = frozenset({"router", "sampler"})
    lanes = ("draft",)
    lossless = False
    changes = "a smaller model writes tokens of it"

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return router_conflict(self.name, method, "token")

    def prefill(self, s: State) -> None:
        prefill_model(s, s.router.opening_model)

    def begin(self, s: State) -> None:
        s.scratch = _TurnState(s.router.opening_model)

    def step(self, s: State) -> Move:
        return self._step_block(s) if s.router.judges else self._step_token(s)

    def _step_token(self, s: State) -> Move:
        """Write one token with the current model."""
        turn: _TurnState = s.scratch
        wrote, clock = turn.active, s.target.executor
        started = clock.mark()
        new = write_token(s, wrote)
        token = new.verdict.token
        assert token is not None
        score = s.router.score(new.logits[0])
        turn.scores.append(score)
        turn.stay += 1
        decided = s.router.turn(wrote, turn.scores, turn.stay)
        details = s.router.turn_details(WrittenToken(wrote, token, score, turn.stay, new.caught), decided)
        turn.active = decided.following
        turn.stay = turn.stay if turn.active == wrote else 0
        _, end = s.cut([token])
        s.tokens.append(token)
        s.chance.forget(len(s.tokens))
        us, commit_us = clock.elapsed_us(started, new.at), clock.elapsed_us(new.at, clock.mark())
        times = (us, 0.0) if wrote == "small" else (0.0, us)
        return Move(
            [token], [ORIGINS[wrote]], end, Draft(), new.verdict, new.logits, *times, commit_us,
            sampler_state=new.before, details=details, looks=[Look("entropy", LANES[wrote], 1)],
        )  # fmt: skip

    def _step_block(self, s: State) -> Move:
        """Write a block with the small model, and judge it with one pass of the large model, which may take tokens back."""
        turn: _TurnState = s.scratch
        clock = s.target.executor
        position = len(s.tokens)
        started = clock.mark()
        tokens, sure, caught = write_ahead(s) if turn.active == "small" else ([], [], 0)
        drafted = clock.mark()
        logits = s.target.forward(
            Feed.causal_chain([s.tokens[-1], *tokens], position - 1, s.target.decoder.device)
        )[0]
        choice = s.target.best
        at = torch.tensor(tokens, dtype=torch.int64, device=logits.device)[:, None]
        loss = (-logits[:-1].double().log_softmax(-1).gather(1, at))[:, 0].tolist()
        kept = kept_count(tokens, loss, choice, s.router.bar)
        verified = clock.mark()
        emitted = [*tokens[:kept], choice[kept]]
        count, end = s.cut(emitted)
        emitted = emitted[:count]
        s.target.commit(list(range(count)))  # the root and all but the last, which is the next root
        s.tokens += emitted
        small = s.lanes[LANES["small"]]
        small.truncate(small.common_prefix_length(s.tokens[:-1]))
        turn.active = "large" if kept < len(tokens) else "small"
        judged = JudgedBlock(tokens, sure, loss, choice[: len(tokens)], kept, choice[kept], caught)
        looks = [
            Look("law", lane, rows) for lane, rows in (("draft", len(sure)), ("target", len(tokens))) if rows
        ]
        own = min(kept, count)
        done = clock.mark()
        origins = [ORIGINS["small"]] * own + [ORIGINS["large"]] * (count - own)
        details = s.router.block_details(judged, count)
        return Move(
            emitted,
            origins,
            end,
            logits=logits,
            draft_us=clock.elapsed_us(started, drafted),
            verify_us=clock.elapsed_us(drafted, verified),
            commit_us=clock.elapsed_us(verified, done),
            details=details,
            looks=looks,
        )
