"""What parts see in a step: Context before the draft, Drafted while it is written, Outcome after the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.lazy import lazy

from ..values.chance import Chance
from ..values.draft import Draft, Verdict
from .lane import Lane
from .sampler import Sampler, softmax


@dataclass
class DraftedToken:
    """The token just drafted, as a schedule sees it. Nothing in it is newer than the token itself. A schedule's decision
    therefore depends on the drafted prefix alone, and the text keeps the target's distribution.

    token:  its id
    logits: float [V] that it was chosen from, before the sampler
    hidden: float [d_model], the draft model's state after the final norm, from which it computed these logits: the state of
            the token before this one; None if the schedule's lane_needs ask for no state
    """

    token: int
    logits: Tensor
    hidden: Tensor | None = None

    @lazy
    def confidence(self) -> float:
        """The largest probability of the draft's distribution before the sampler."""
        return largest_probability(self.logits)


def largest_probability(logits: Tensor) -> float:
    """The largest probability of the distribution of logits [V]."""
    return float(logits.softmax(-1).amax())


class DraftLength:
    """The length of a draft that is written token by token: here the value of the drafter's own knob. A schedule overrides
    it.

    adapts: True if the answer of `continue_drafting` may depend on the tokens drafted
    """

    adapts: ClassVar[bool] = False

    def draft_limit(self, ctx: Context, length: int) -> int:
        """How many tokens may be drafted in this step, at most ctx.room; length: the drafter's own knob."""
        return min(length, ctx.room)

    def is_worth_verifying(self, logits: Tensor) -> bool:
        """Called before each token is drawn, with the logits [V] that it would be drawn from, before the sampler. False: it is
        not drawn, and the draft ends before it."""
        return True

    def continue_drafting(self, drafted: DraftedToken) -> bool:
        """True to draft another token after this one, if there is still room."""
        return True

    def notes(self) -> dict[str, Any]:
        """The reason for the length of the last draft, for the trace, under the name "schedule"; empty: none."""
        return {}


@dataclass
class Context:
    """What a drafter may read.

    tokens: prompt and text; the last is the root, which the target has not read yet
    sampler: under which a draft is drawn: the target's, unless the drafter has a temperature of its own
    state:  the sampler's, after those tokens
    room:   tokens that may still be drafted; a deeper draft would be cut
    encode: text -> its ids, without a prefix; None: the model came without a tokenizer
    schedule: limits the draft's length, for drafters that can be scheduled
    records: True if what is decided in this step is recorded
    """

    tokens: list[int]
    target: Lane
    lanes: dict[str, Lane]
    sampler: Sampler
    state: Any
    chance: Chance
    room: int
    prompt: int
    encode: Callable[[str], list[int]] | None = None
    schedule: DraftLength = field(default_factory=DraftLength)
    records: bool = False

    def keep_logits(self, places: Iterable[int], rows: Tensor | list[Tensor]) -> dict[int, Tensor]:
        """`Draft.logits` of some places. rows: [P, V], those that the children of each place are from, before the sampler.
        Empty if the step is not recorded; nothing is computed or copied."""
        if not self.records:
            return {}
        return dict(zip(places, rows if isinstance(rows, list) else rows.unbind(0), strict=False))

    @property
    def position(self) -> int:
        """Position of the first drafted token."""
        return len(self.tokens)

    def law(self, logits: Tensor, state: Any) -> Tensor:
        """float [V]: what the sampler makes of a draft model's logits [V]."""
        return softmax(self.sampler.warp(logits, state))

    def estimate(self, logits: Tensor, state: Any) -> Tensor:
        """float [V]: the probability of each token, from a draft model's logits [V]: its distribution under the sampler.
        [R, V] works at once if the sampler has no state.

        Under a greedy sampler the result is the model's own distribution. If the sampler then prefers another token, that token
        and the favourite swap their probabilities.
        """
        if not self.sampler.greedy:
            return self.law(logits, state)
        law = softmax(logits)
        if self.sampler.stateful:
            pair = torch.stack([law.argmax(), self.sampler.warp(logits, state).argmax()])
            law[pair] = law[pair.flip(0)]
        return law


@dataclass
class DraftOutcome:
    """The result of a draft.

    logits: float [N + 1, V] of the target; row 0 follows the root, row i + 1 node i; best: their argmax
    hidden: the probe's states of the same rows, if the drafter's needs asked for them
    slots:  float [S, V], the target's logits in the draft's slots; None if it had none
    """

    root: int
    draft: Draft
    verdict: Verdict
    logits: Tensor
    best: list[int]
    hidden: dict[int | str, Tensor]
    slots: Tensor | None = None
