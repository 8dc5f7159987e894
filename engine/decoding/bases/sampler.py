"""Sampler: from logits to the distribution that the next token is drawn from.

A sampler is pure: its state goes in and comes out. Verification walks down a path that may be refused, so it must be
able to ask "what would the distribution be after these tokens?" without changing anything.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.activity import Activity, count_noun
from decodescope.engine.core.component import Component

from ..values.alphabet import Alphabet


class Sampler(Component):
    """Base of every sampler. A chain applies several in a visible order.

    stateful: whether `warp` reads the state; if not, many rows are warped at once
    reads_logits: whether `update` reads the logits that entered `warp`
    by_rank: whether what it removes depends on the order of the logits alone, not on how far apart they are
    cuts: whether it may remove tokens
    constrains: True if a text must obey it, so that it has to see every token: a sampler that cuts comes after it
    departs: why the text is not the model's own, in a few words, if a sampler does more than shape the distribution as
             usual; empty: it does not
    reads_text: True if it needs the text of ids (`alphabet`)
    """

    kind = "sampler"
    stateful: ClassVar[bool] = False
    reads_logits: ClassVar[bool] = False
    by_rank: ClassVar[bool] = False
    cuts: ClassVar[bool] = True
    constrains: ClassVar[bool] = False
    departs: ClassVar[str] = ""
    reads_text: ClassVar[bool] = False

    @property
    def in_order(self) -> list[Sampler]:
        """The samplers that act, one after the other: itself, or the stages that it is made of."""
        return [self]

    @property
    def greedy(self) -> bool:
        """True if the distribution always has one token: the most likely one after the warps before."""
        return False

    @property
    def divisor(self) -> float | None:
        """The temperature that it divides the logits by; None if it does something else."""
        return None

    def describe(self) -> dict[str, Any]:
        heats = [stage.divisor for stage in self.in_order if stage.divisor is not None]
        departs = [stage.departs for stage in self.in_order if stage.departs]
        return {
            "greedy": self.greedy,
            "heat": float(math.prod(heats)),
            "cuts": any(stage.cuts for stage in self.in_order),
            **({"departs": ", ".join(departs)} if departs else {}),
        }

    def start(self, prompt: list[int], vocab: int, alphabet: Alphabet | None = None) -> Any:
        """The state before the first generated token. alphabet: the text of the ids; None: unknown."""
        return None

    def warp(self, logits: Tensor, state: Any) -> Tensor:
        """logits float [V] (or [R, V], if not stateful) -> the same shape; -inf removes a token. Changes nothing."""
        return logits

    def update(self, state: Any, token: int, logits: Tensor) -> Any:
        """The state after `token`; logits float [V] are those that `warp` was given."""
        return state

    def state_summary(self, state: Any) -> dict[str, Any] | None:
        """The part of the state that is worth recording before a step, as plain data."""
        return None

    def has_effect(self, before: Tensor, after: Tensor) -> bool:
        """True if `warp` changed the logits [V]; for a sampler that a text must obey: True if it refused the likeliest
        token."""
        return (
            bool(after[before.argmax()] == -torch.inf) if self.constrains else not torch.equal(before, after)
        )

    def idle_reason(self, did: Activity) -> str:
        if did.blind or did.has_acted(self) or not did.steps:
            return ""
        if self.constrains:
            return f"{self.name} refused nothing in {count_noun(did.steps, 'step')}: the likeliest token always fitted."
        if did.samplers < 2:
            return ""  # one alone is at least why tokens are drawn
        return f"{self.name} changed no distribution in {count_noun(did.steps, 'step')} with {self.knobs_as_text}."

    def find_violations(self, text: bytes) -> list[str]:
        """What a finished text breaks of what the sampler holds it to, as sentences: where its masks are only nearly exact."""
        return []

    def violations_at_end(
        self, tokens: Sequence[int], stops: Container[int], alphabet: Alphabet | None
    ) -> list[str]:
        """The same of written tokens that have come to their end, which is one of `stops`; nothing of others."""
        if not self.constrains or alphabet is None or not tokens or tokens[-1] not in stops:
            return []
        return self.find_violations(alphabet.bytes_of(tokens[:-1]))

    def logits_summary(self, logits: Tensor, state: Any) -> dict[str, Any] | None:
        """What is worth recording about logits [V], as plain data; called only if decisions are recorded."""
        return None


def softmax(logits: Tensor) -> Tensor:
    """Probabilities of logits [..., V]; -inf becomes exactly 0."""
    return torch.softmax(logits, -1)


def one_token(logits: Tensor) -> Tensor:
    """logits [..., V] with everything but the first largest removed."""
    best = logits.argmax(-1, keepdim=True)
    return torch.full_like(logits, -torch.inf).scatter_(-1, best, 0.0)
