"""Drafter: guesses the tokens after the root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..chance import Chance
from ..component import Component
from ..draft import Draft, Proposal, Verdict
from ..lane import Lane
from ..probe import Needs
from ..samplers.base import Sampler, softmax
from ..schedules.base import Schedule
from ..spec import ModelSpec


@dataclass
class Context:
    """What a drafter may look at.

    tokens: prompt and text; the last is the root, which the target has not read yet
    state:  the sampler's, after those tokens
    room:   tokens that may still be drafted; a deeper draft would be cut
    encode: text -> its ids, nothing put in front; None: the model came without a tokenizer
    schedule: how long the draft may get, for drafters that can be scheduled
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
    schedule: Schedule = field(default_factory=Schedule)

    @property
    def position(self) -> int:
        """Position of the first drafted token."""
        return len(self.tokens)

    def law(self, logits: Tensor, state: Any) -> Tensor:
        """float [V]: what the sampler makes of a draft model's logits [V]."""
        return softmax(self.sampler.warp(logits, state))

    def estimate(self, logits: Tensor, state: Any) -> Tensor:
        """float [V]: how likely each token is, by a draft model's logits [V], for drafters that reckon with it: its law under
        the sampler ([R, V] at once, if that has no state).

        Under a greedy sampler it is the model's own law; if the sampler then prefers another token, that token and the
        favourite change places.
        """
        if not self.sampler.greedy:
            return self.law(logits, state)
        law = softmax(logits)
        if self.sampler.stateful:
            pair = torch.stack([law.argmax(), self.sampler.warp(logits, state).argmax()])
            law[pair] = law[pair.flip(0)]
        return law


@dataclass
class Outcome:
    """What became of a draft.

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


class Drafter(Component):
    """Base of every drafter. `lanes`: further models it needs, by role. `proposes`: the kind of draft it makes when the
    sampler draws, and when the sampler is greedy."""

    kind = "drafter"
    lanes: ClassVar[tuple[str, ...]] = ()
    proposes: ClassVar[Proposal] = "onehot"

    @property
    def branches(self) -> bool:
        """Whether a draft, as set, may be a tree rather than a chain."""
        return False

    @property
    def scheduled(self) -> bool:
        """Whether it, as set, asks the method's schedule how long to draft: token by token, from a model, as a chain."""
        return False

    @property
    def reads_text(self) -> bool:
        """Whether it, as set, holds text that the target's tokenizer has to read (Context.encode)."""
        return False

    def lacks(self, draft: ModelSpec) -> str | None:
        """Why it cannot draft with the model `draft`; None if it can."""
        return None

    def asks(self, spec: ModelSpec) -> Needs:
        """What it asks of every pass of a target of this shape: `needs`, unless that depends on the shape."""
        return self.needs

    def begin(self, ctx: Context) -> None:
        """Called once, when the prompt has been read up to the root."""

    def propose(self, ctx: Context) -> Draft:
        """A draft of at most ctx.room levels; empty to let the target go on alone."""
        raise NotImplementedError

    def observe(self, outcome: Outcome) -> None:
        """Called after the commit: learn, recycle, adapt."""


class DrawnDrafter(Drafter):
    """Base of drafters whose nodes are drawn from a law: siblings one after the other from what the earlier ones left."""

    @property
    def proposes(self) -> Proposal:  # type: ignore[override] # depends on a knob
        """How nodes are drawn when the sampler draws."""
        return "without_replacement" if self.branches else "iid"


def top_tokens(logits: Tensor, k: int) -> list[int]:
    """The k most likely ids of logits [V] (all, if V is smaller), best first."""
    return logits.topk(min(k, len(logits))).indices.tolist()
