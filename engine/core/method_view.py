"""MethodView: what a part may ask of its neighbours, before a run, to see whether it fits among them. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from .probe import Needs


class DrafterView(Protocol):
    """A drafter, as its neighbours see it; the words are those of engine/decoding/bases/drafter.py."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    lanes: ClassVar[tuple[str, ...]]
    """The further models that it needs, by role."""

    drafts: ClassVar[bool]
    """Whether it ever proposes anything."""

    speaks: ClassVar[str]
    """The role of the model whose own tokens, one after another, are the draft; empty: something else makes it."""

    @property
    def uses_schedule(self) -> bool:
        """Whether it asks the schedule how long to draft."""
        ...

    @property
    def branches(self) -> bool:
        """Whether its drafts may be trees."""
        ...

    looks_up: ClassVar[bool]
    """Whether its drafts are chains of tokens from texts, which no model and no head computes."""

    resumes: ClassVar[bool]
    """Whether the target goes on from states that its drafts have left."""


class CachePartView(Protocol):
    """A cache policy, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    does: ClassVar[frozenset[Any]]
    """What becomes of entries; nothing: all stay as they are."""

    @property
    def needs(self) -> Needs:
        """What it asks of passes."""
        ...


class DepthView(Protocol):
    """A rule of adaptive depth, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    exact: ClassVar[bool]
    """Whether all layers run for every token."""

    @property
    def skipped_kv(self) -> str:
        """What the cache holds for layers that do not run."""
        ...

    @property
    def defer_layer(self) -> int | None:
        """The layer that deferred tokens have not entered yet; None if no tokens wait."""
        ...


class SamplerView(Protocol):
    """A sampler, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def greedy(self) -> bool:
        """Whether its distribution always holds a single token."""
        ...

    stateful: ClassVar[bool]
    """Whether its distribution depends on more than the logits."""

    constrains: ClassVar[bool]
    """Whether a text must obey it."""

    cuts: ClassVar[bool]
    """Whether it may remove tokens."""

    @property
    def in_order(self) -> Sequence[SamplerView]:
        """The samplers that act, one after the other."""
        ...


class SelectorView(Protocol):
    """An unmasking rule, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def drops(self) -> bool:
        """Whether it may leave out places of a canvas."""
        ...

    reopens: ClassVar[bool]
    """Whether it masks places again."""


class RouterView(Protocol):
    """A router, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    of: ClassVar[frozenset[str]]
    """What it decides about: a "token", an "answer"."""


class AcceptanceView(Protocol):
    """An acceptance rule, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    keeps_law: ClassVar[bool]
    """Whether it keeps no token that has no probability in the target's distribution."""


class GuidanceView(Protocol):
    """A kind of guidance, as its neighbours see it."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    cuts: ClassVar[bool]
    """Whether it may remove tokens."""


class MethodView(Protocol):
    """The parts of a method that others ask about. Method is one; a part never sees more of it than this."""

    @property
    def drafter(self) -> DrafterView:
        """What guesses."""
        ...

    @property
    def policy(self) -> CachePartView:
        """Which entries stay."""
        ...

    @property
    def kv_compression(self) -> CachePartView:
        """How entries are stored."""
        ...

    @property
    def adaptive_depth(self) -> DepthView:
        """Which layers run."""
        ...

    @property
    def unmasking(self) -> SelectorView:
        """Which places of a canvas are committed."""
        ...

    @property
    def router(self) -> RouterView:
        """Which of two models writes."""
        ...

    @property
    def acceptance(self) -> AcceptanceView:
        """How much of a draft is kept."""
        ...

    @property
    def guidance(self) -> GuidanceView:
        """The guidance, which replaces the target's distribution."""
        ...

    @property
    def sampler(self) -> SamplerView:
        """What tokens are drawn from."""
        ...
