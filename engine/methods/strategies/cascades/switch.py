"""Switch: a small and a large model write one text by turns, token by token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from decodescope.engine.core.company import Company
from decodescope.engine.core.component import component
from decodescope.engine.decoding.draft import Draft
from decodescope.engine.decoding.state import Move, State
from decodescope.engine.decoding.strategy import Strategy
from decodescope.engine.trace.switched import ORIGINS, Size, Switch

from ..shared.turns import misrouted, prepare, write

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec


@dataclass
class _Turn:
    """Whose turn it is, how many tokens it has made in a row, and the router's scores so far."""

    active: Size
    stay: int = 0
    scores: list[float] = field(default_factory=list)


@component
class SwitchModels(Strategy):
    """The target is the large model, the role draft the small one; a router says whose turn it is. Each has a cache of its
    own, reads nothing before it is asked, not even the prompt, and then catches up, in one block, on what the other one
    wrote. A step is a token, drawn from the law of whose turn it is.
    """

    title = "Switching models"
    source = "Simonds 2025, arXiv:2502.06833; Kim et al. 2023, arXiv:2302.07863"
    uses = frozenset({"router", "sampler"})
    lanes = ("draft",)
    lossless = False
    changes = "a smaller model writes tokens of it"

    def refuse(self, method: Company, spec: ModelSpec) -> str | None:
        return misrouted(self.name, method, "token")

    def prefill(self, s: State) -> None:
        prepare(s, s.router.first)

    def begin(self, s: State) -> None:
        s.scratch = _Turn(s.router.first)

    def step(self, s: State) -> Move:
        turn: _Turn = s.scratch
        wrote, clock = turn.active, s.target.executor
        started = clock.mark()
        new = write(s, wrote)
        token = new.verdict.token
        assert token is not None
        score = s.router.score(new.logits[0])
        turn.scores.append(score)
        turn.stay += 1
        mean, tau, turn.active = s.router.turn(wrote, turn.scores, turn.stay)
        record = Switch(wrote, turn.active, score, tau, turn.stay, new.caught, mean)
        turn.stay = turn.stay if turn.active == wrote else 0
        _, end = s.cut([token])
        s.tokens.append(token)
        s.chance.forget(len(s.tokens))
        us, commit_us = clock.elapsed_us(started, new.at), clock.elapsed_us(new.at, clock.mark())
        times = (us, 0.0) if wrote == "small" else (0.0, us)
        return Move(
            [token], [ORIGINS[wrote]], end, Draft(), new.verdict, new.logits, *times, commit_us,
            sampler_state=new.before, switch=record,
        )  # fmt: skip
