"""The interface between a decoder and the nets around it."""

from __future__ import annotations

from typing import Any, Protocol, Self

from torch import Tensor


class Vocabulary(Protocol):
    """Turns ids into embeddings, and final features into logits: a decoder, as a draft head sees it. embed: [V, d_model];
    head: [V, d_model], perhaps packed."""

    embed: Tensor
    head: Tensor

    @property
    def vocab(self) -> int:
        """V, the number of ids that get a logit."""
        ...

    def unembed(self, feature: Tensor) -> Tensor:
        """Logits [..., V] of final features [..., d_model]."""
        ...


class CompanionNet(Protocol):
    """A net that was trained on a decoder, came with its weights, and goes where they go."""

    def copy_to(self, **where: Any) -> Self:
        """The same net in another type or place; the keywords are those of Tensor.to."""
        ...
