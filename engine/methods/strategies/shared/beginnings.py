"""Beginnings of texts behind one prompt: each is read once, however many texts pass through it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.state import State
from decodescope.engine.decoding.shared.branches import TextBranch, TextBranches
from decodescope.engine.trace.records.events import EndReason


@dataclass(eq=False)
class Beginning:
    """A beginning of texts.

    - depth: its number of tokens;  ends: why a text ends with it
    - branch: holds its entries, once it was read;  offers, priors: its likeliest next tokens, and their normalised
      probabilities
    """

    token: int
    parent: Beginning | None
    depth: int
    ends: EndReason | None = None
    branch: TextBranch | None = None
    offers: list[int] = field(default_factory=list)
    priors: list[float] = field(default_factory=list)
    next: dict[int, Beginning] = field(default_factory=dict)

    @property
    def tokens(self) -> list[int]:
        """The tokens from the prompt's end to here."""
        return [] if self.parent is None else [*self.parent.tokens, self.token]


class Beginnings:
    """All texts begun behind a prompt: each beginning is read once, and its entries are held for all continuations."""

    def __init__(self, s: State, k: int):
        self.s = s
        self.k = k
        self.prompt = len(s.tokens)
        self.branches = TextBranches(s.target, s.tokens)
        self.read = 0
        self.root = Beginning(-1, None, 0)
        self.root.branch = self.branches.alive[0]
        self._read_last_token(self.root)

    def extend(self, place: Beginning, token: int) -> Beginning:
        """The beginning with one more token; it is read if it was not read before and a text may continue there."""
        if token not in place.next:
            stops = self.s.stop.find_stop(place.tokens, [token]) is not None
            longer = Beginning(
                token, place, place.depth + 1, "stop_token" if stops else self.s.limit_reason(place.depth + 1)
            )
            place.next[token] = longer
            if longer.ends is None:
                own, held = place.branch, self.prompt + place.depth
                assert own is not None
                if len(own.tokens) == held:
                    own.tokens.append(token)
                else:
                    own = self.branches.fork(own, held, [token])
                longer.branch = own
                self._read_last_token(longer)
        return place.next[token]

    def _read_last_token(self, place: Beginning) -> None:
        """Run one pass over a beginning's last token, to find the next tokens."""
        assert place.branch is not None
        at = self.branches.alive.index(place.branch)
        logits: Tensor = self.branches.step_all_logits()[at][-1]  # [V]
        self.read += 1
        order = torch.argsort(logits, descending=True, stable=True)[: self.k]
        order = order[logits[order].isfinite()]
        place.offers = order.tolist()
        place.priors = logits[order].double().softmax(0).tolist()

    def complete(self, place: Beginning) -> Beginning:
        """The greedy text behind a beginning."""
        while place.ends is None:
            place = self.extend(place, place.offers[0])
        return place

    def keep_only(self, place: Beginning) -> None:
        """Keep only the entries of one text."""
        at = place.parent
        assert at is not None and at.branch is not None and place.branch is None, (
            "the last token of a text is not read"
        )
        own, held = at.branch, self.prompt + at.depth
        if len(own.tokens) > held:
            own = self.branches.fork(own, held, [place.token])
        for branch in [x for x in self.branches.alive if x is not own]:
            self.branches.end(branch)
