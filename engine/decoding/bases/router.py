"""Router: which of two models writes, token by token or answer by answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.component import Component
from decodescope.engine.core.roles import TARGET
from decodescope.engine.trace.details.answered import Bet, Candidate, Compared
from decodescope.engine.trace.details.declarations import Form
from decodescope.engine.trace.details.looked import Look, Looked
from decodescope.engine.trace.details.switched import Size
from decodescope.engine.trace.records.events import Piece

from .lane import Lane
from .sampler import Sampler


@dataclass
class Question:
    """What a router may look at beside the answers.

    tokens: the prompt;  left: tokens that an answer may have
    small, large: the lanes of both models; those of the small one's first form stand in the first, of the large one none yet
    encode: text -> its ids, nothing put in front;  piece: id -> its text, or bytes of one; None without a tokenizer
    states: of each answer, float [A, d], those after the final norm that wrote its tokens, where the router asks for them
    bet:    by what the router chose a model before any answer, from `forms` to `judge`
    looks:  what the router ran beside the passes, which it enters itself
    """

    tokens: list[int]
    left: int
    small: Lane
    large: Lane
    sampler: Sampler
    encode: Callable[[str], list[int]] | None = None
    piece: Callable[[int], Piece] | None = None
    states: list[Tensor] = field(default_factory=list)
    bet: Bet | None = None
    looks: list[Look] = field(default_factory=list)

    def look(self, of: Looked, rows: int, widths: Sequence[int] = ()) -> None:
        """Enter what was worked out of so many of the small model's laws or states."""
        self.looks.append(Look(of, "draft", rows, [*widths]))


@dataclass
class Judged:
    """What a router thinks of the answers.

    score: of all of them together;  chosen: the one that would be kept;  votes: of each the part of all that agree with it;
    empty: they do not vote;  compared, bet: as in the record
    """

    score: float
    chosen: int = 0
    votes: Sequence[float] = ()
    compared: Sequence[Compared] = ()
    bet: Bet | None = None


class Router(Component):
    """Base of every router. `tau`, a knob of each, is what its score is held against.

    of:     what it decides about: a "token" (the strategy switch), an "answer" (cascade)
    judges: of tokens: whether the large model reads what the small one wrote in a row, and may take it back
    by:     of answers: how the score follows from the record, for its check (engine/trace/details/answered.py);
            above: whether a
            score of at least tau keeps an answer, else one of at most tau
    details: name -> what the details of that name mean, as a strategy has them
    """

    kind = "router"
    of: ClassVar[frozenset[str]] = frozenset()
    judges: ClassVar[bool] = False
    by: ClassVar[str] = ""
    above: ClassVar[bool] = True
    details: ClassVar[Mapping[str, Form]] = {}
    tau: float

    @property
    def first(self) -> Size:
        """Whose turn it is first."""
        return "large"

    @property
    def reach(self) -> int:
        """How many tokens the small model writes in a row, at most, where the large one judges them."""
        raise NotImplementedError

    def score(self, logits: Tensor) -> float:
        """What is looked at in a law, by logits float [V] before the sampler."""
        raise NotImplementedError

    def turn(self, active: Size, scores: list[float], stay: int) -> tuple[float, float, Size]:
        """Mean of the last scores, what it is held against, and whose turn it is next. scores: of all tokens so far, which
        may be shortened;  stay: tokens that the active model has made in a row"""
        raise NotImplementedError

    def idle(self, did: Activity) -> str:
        if (
            len(did.lanes) != 1 or "token" not in self.of
        ):  # one model for one answer is what the router decided
            return ""
        which = "large" if did.lanes == {TARGET} else "small"
        return f"{self.name} never handed over: the {which} model wrote everything."

    @property
    def bar(self) -> float:
        """The loss, -ln p by the large model, above which a token of the small one is taken back."""
        raise NotImplementedError

    @property
    def copies(self) -> int:
        """How many answers the small model writes to each form of the question."""
        return 1

    def forms(self, question: Question) -> list[list[int]]:
        """The forms in which the small model is asked, the prompt itself first; none: it is not asked."""
        return [question.tokens]

    def judge(self, answers: list[Candidate], question: Question) -> Judged:
        """The score of the answers, and the one that would be kept; none: the small model was not asked."""
        raise NotImplementedError
