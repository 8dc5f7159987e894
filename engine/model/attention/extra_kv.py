"""Extra keys and values: what the rows of a pass attend to that is not an entry of a token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from .attention import upcast_half
from .segments import DenseSegment, PartialAttention, RopeMode, Segment

# what an entry without a token is: a trained input before the text, or a vector that some model put into it
Kind = Literal["soft", "latent"]


class ExtraKV(Protocol):
    """Something that every row attends to in every layer, in addition to the entries of its text.

    It is held permanently, and no policy or KV compression touches it.
    """

    @property
    def kind(self) -> str:
        """In a word."""
        ...

    @property
    def origin(self) -> str:
        """The source it was made from, as the trace records it."""
        ...

    @property
    def at(self) -> int:
        """Number of text tokens before it."""
        ...

    @property
    def entries(self) -> int:
        """Per KV head; 0 for a state."""
        ...

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that it holds in the cache."""
        ...

    def segment(self, layer: int, batch: int, rope: RopeMode) -> Segment:
        """The segment that a layer's queries of `batch` sequences attend to; rope: how they count the distance of first
        entries."""
        ...


@dataclass(frozen=True)
class ExtraEmbeds:
    """Inputs of the first layer that are inserted into a text at places without tokens.

    rows:   float [S, d_model];  at: number of text tokens before them
    origin: the source they were made from, as the trace records it
    """

    rows: Tensor
    kind: Kind
    at: int = 0
    origin: str = ""


@dataclass(frozen=True, kw_only=True)
class UnreportedSegment(DenseSegment):
    """Entries that no policy sees. They take part in the attention, but the weights that rows give to them are missing from
    the reported weights, which then sum to less than 1."""

    def attend(
        self, q: Tensor, mask: Tensor | None, scale: float, cap: float | None = None, *, weights: bool = False
    ) -> PartialAttention:
        part = super().attend(q, mask, scale, cap)
        return part._replace(weights=upcast_half(q).new_zeros(*q.shape[:4], 0)) if weights else part


@dataclass(frozen=True)
class ExtraEntries:
    """Entries without tokens. They are held separately from the stores, whose slots and positions are those of the text alone.
    So nothing can evict, score, pack or count them. All sequences of a batch read the same ones.

    kv: by layer float [2, 1, H_kv, S, D], keys rotated to their positions
    """

    kind: Kind
    at: int
    kv: tuple[Tensor, ...]
    origin: str = ""

    @property
    def entries(self) -> int:
        """Per KV head."""
        return self.kv[0].shape[3]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that it holds in the cache."""
        return self.kv

    def __deepcopy__(self, memo: object) -> ExtraEntries:
        return self

    def segment(self, layer: int, batch: int, rope: RopeMode) -> Segment:
        """Entries before the text are right before its first entries, however their distance is counted; others are at their
        place in the text."""
        k, v = self.kv[layer].expand(-1, batch, -1, -1, -1)
        return UnreportedSegment(k=k, v=v, rope=rope if self.at == 0 else "original")


@dataclass(frozen=True)
class ExtraState:
    """A state that replaces entries without holding any, by layer. It is stored with the model's weights, but for `tensors`,
    which exist for this cache."""

    segments: tuple[Segment, ...]
    origin: str = ""
    kind: str = "state"
    at: int = 0
    entries: int = 0
    tensors: tuple[Tensor, ...] = ()

    def __deepcopy__(self, memo: object) -> ExtraState:
        return self

    def segment(self, layer: int, batch: int, rope: RopeMode) -> Segment:
        """Of one form for every batch and rotation."""
        return self.segments[layer]


def copy_pending(kv: tuple[Tensor, Tensor], first: int) -> Tensor:
    """float [2, 1, H_kv, S, D]: a copy of keys and values (float [B, H_kv, n + S, D] each) from slot `first` on, of the first
    sequence."""
    return torch.stack([x[:1, :, first:] for x in kv])
