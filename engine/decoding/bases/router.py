"""Router: which of two models writes, token by token or answer by answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from torch import Tensor

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.component import Component
from decodescope.engine.core.roles import TARGET
from decodescope.engine.trace.details.declarations import Form, TallyForm
from decodescope.engine.trace.details.looks import Look, Looked
from decodescope.engine.trace.details.shapes import Detail
from decodescope.engine.trace.details.turns import Size
from decodescope.engine.trace.records.events import Piece

from .answers import AnswerJudgement, Candidate, answers_tally
from .lane import Lane
from .sampler import Sampler


@dataclass
class RouterQuestion:
    """What a router may read in addition to the answers.

    tokens: the prompt;  left: tokens that an answer may have
    small, large: the lanes of both models; the small lane holds the prompt tokens of its first form, the large one none yet
    encode: text -> its ids, without a prefix;  piece: id -> its text, or bytes of one; None without a tokenizer
    states: of each answer, float [A, d], the states after the final norm that wrote its tokens, if the router asks for them
    bet:    numbers by which the router chose a model before any answer, by name, from `forms` to `judge`
    looks:  computations that the router ran in addition to the passes; it enters them itself
    """

    tokens: list[int]
    left: int
    small: Lane
    large: Lane
    sampler: Sampler
    encode: Callable[[str], list[int]] | None = None
    piece: Callable[[int], Piece] | None = None
    states: list[Tensor] = field(default_factory=list)
    bet: dict[str, float] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)

    def add_look(self, of: Looked, rows: int, widths: Sequence[int] = ()) -> None:
        """Record that the router evaluated `rows` distributions or states of the small model."""
        self.looks.append(Look(of, "draft", rows, [*widths]))


class Turn(NamedTuple):
    """The next model after a token. mean: of the last scores;  bar: the bound for it;  following: the model that goes on"""

    mean: float
    bar: float
    following: Size


@dataclass
class WrittenToken:
    """A token of one model. score: the router's, of the distribution it was drawn from;  stay: tokens that the writer has made
    in a row;  caught: rows that it had to read first, since the other one wrote them"""

    wrote: Size
    token: int
    score: float
    stay: int
    caught: int


@dataclass
class JudgedBlock:
    """A block of consecutive tokens of the small model, and the large model's judgement.

    tokens: ids that the small model wrote;  sure: its largest probability at each, and last at the place that it gave up, if
            it did;  loss: of each token -ln p by the large model;  choice: and the large model's likeliest token there
    kept:   how many of them stay;  own: the large model's token after them
    caught: rows that the small model had to read first
    """

    tokens: list[int]
    sure: list[float]
    loss: list[float]
    choice: list[int]
    kept: int
    own: int
    caught: int


class Router(Component):
    """Base of every router. `tau`, a knob of each, is what its score is compared with.

    of:     the subject of its decision: a "token" (the strategy switch), an "answer" (cascade)
    judges: for tokens: True if the large model reads what the small one wrote in a row, and may take it back
    above:  for answers: True if a score of at least tau keeps an answer, False if one of at most tau does
    details: name -> what the details of that name mean, as a strategy has them; of answers one made by `answers_form`
    """

    kind = "router"
    of: ClassVar[frozenset[str]] = frozenset()
    judges: ClassVar[bool] = False
    above: ClassVar[bool] = True
    details: ClassVar[Mapping[str, Form]] = {}
    tau: float

    @property
    def opening_model(self) -> Size:
        """The model that writes first."""
        return "large"

    @property
    def reach(self) -> int:
        """How many tokens the small model writes in a row, at most, where the large one judges them."""
        raise NotImplementedError

    def score(self, logits: Tensor) -> float:
        """The score of a distribution with logits float [V], before the sampler."""
        raise NotImplementedError

    def turn(self, active: Size, scores: list[float], stay: int) -> Turn:
        """The model that writes next. scores: of all tokens so far, may be shortened;  stay: tokens that the active model has
        made in a row"""
        raise NotImplementedError

    def turn_details(self, written: WrittenToken, turn: Turn) -> list[Detail]:
        """What a step records of a token, and of the choice of the next model."""
        raise NotImplementedError

    def block_details(self, block: JudgedBlock, emitted: int) -> list[Detail]:
        """What a step that emitted `emitted` tokens records of a block that the large model judged."""
        raise NotImplementedError

    def idle_reason(self, did: Activity) -> str:
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

    def forms(self, question: RouterQuestion) -> list[list[int]]:
        """The forms in which the small model is asked, the prompt itself first; none: it is not asked."""
        return [question.tokens]

    def judge(self, answers: list[Candidate], question: RouterQuestion) -> AnswerJudgement:
        """The score of the answers, and the one that would be kept; none: the small model was not asked."""
        raise NotImplementedError

    def keeps(self, score: float) -> bool:
        """True if an answer with this score is kept."""
        return score >= self.tau if self.above else score <= self.tau

    @property
    def answers_detail(self) -> str:
        """Name of the detail that holds the answers."""
        tallies = ((name, form) for name, form in self.details.items() if isinstance(form, TallyForm))
        return next(name for name, form in tallies if form.scale is not None and form.scale.tokens)

    def answer_details(
        self, answers: Sequence[Candidate], judged: AnswerJudgement, *, kept: bool, forms: int, read: int
    ) -> list[Detail]:
        """What a step records of the answers. forms: of the question;  read: rows of the small model's passes so far"""
        tally = answers_tally(self.answers_detail, answers, judged, kept=kept, forms=forms, read=read)
        return [tally, *judged.more]
