"""MethodView: what a part may ask of its neighbours, before a run, to see whether it fits among them. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .probe import Needs


class Guesses(Protocol):
    """A drafter, as its neighbours see it; the words are those of engine/decoding/bases/drafter.py."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def lanes(self) -> tuple[str, ...]:
        """The further models that it needs, by role."""

    @property
    def drafts(self) -> bool:
        """Whether it ever proposes anything."""

    @property
    def speaks(self) -> str:
        """The role of the model whose own tokens, one after another, are the draft; empty: something else makes it."""

    @property
    def scheduled(self) -> bool:
        """Whether it asks the schedule how long to draft."""

    @property
    def branches(self) -> bool:
        """Whether its drafts may be trees."""

    @property
    def resumes(self) -> bool:
        """Whether the target goes on from states that its drafts have left."""


class Keeps(Protocol):
    """A cache policy, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def does(self) -> frozenset[Any]:
        """What becomes of entries; nothing: all stay as they are."""

    @property
    def needs(self) -> Needs:
        """What it asks of passes."""


class Leaves(Protocol):
    """A rule of the kind depth, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def exact(self) -> bool:
        """Whether all layers run for every token."""

    @property
    def gap(self) -> str:
        """What stands in the cache of layers that do not run."""

    @property
    def stops(self) -> int | None:
        """The layer in front of which tokens wait; None: none do."""


class Chooses(Protocol):
    """A sampler, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def greedy(self) -> bool:
        """Whether its law always has one token."""

    @property
    def stateful(self) -> bool:
        """Whether its law depends on more than the logits."""

    @property
    def constrains(self) -> bool:
        """Whether a text must obey it."""

    @property
    def cuts(self) -> bool:
        """Whether it may remove tokens."""

    @property
    def in_order(self) -> Sequence[Chooses]:
        """The samplers that act, one after the other."""


class Commits(Protocol):
    """A selector, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def drops(self) -> bool:
        """Whether it may leave out places of a canvas."""

    @property
    def reopens(self) -> bool:
        """Whether it masks places again."""


class Decides(Protocol):
    """A router, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def of(self) -> frozenset[str]:
        """What it decides about: a "token", an "answer"."""


class Judges(Protocol):
    """An acceptance rule, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def keeps_law(self) -> bool:
        """Whether it keeps no token to which the target's law gives nothing."""


class Stands(Protocol):
    """A law, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def cuts(self) -> bool:
        """Whether it may remove tokens."""


class MethodView(Protocol):
    """The parts of a method that others ask about. Method is one; a part never sees more of it than this."""

    @property
    def drafter(self) -> Guesses:
        """What guesses."""

    @property
    def policy(self) -> Keeps:
        """Which entries stay."""

    @property
    def codec(self) -> Keeps:
        """How entries are stored."""

    @property
    def depth(self) -> Leaves:
        """Which layers run."""

    @property
    def selector(self) -> Commits:
        """Which places of a canvas are committed."""

    @property
    def router(self) -> Decides:
        """Which of two models writes."""

    @property
    def acceptance(self) -> Judges:
        """How much of a draft is kept."""

    @property
    def law(self) -> Stands:
        """What stands in the place of the target's law."""

    @property
    def sampler(self) -> Chooses:
        """What tokens are drawn from."""
