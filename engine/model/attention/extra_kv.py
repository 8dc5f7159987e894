"""Beside: what the rows of a pass attend to that is no entry of a token."""

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
    """Something that every row attends to in every layer, beside the entries of its text.

    It is held for good, and no policy or codec hears of it.
    """

    @property
    def kind(self) -> str:
        """In a word."""
        ...

    @property
    def origin(self) -> str:
        """What it was made of, as the trace tells it."""
        ...

    @property
    def at(self) -> int:
        """Tokens of the text that stand before it."""
        ...

    @property
    def entries(self) -> int:
        """Per KV head; 0 for a state."""
        ...

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What it holds in the cache."""
        ...

    def segment(self, layer: int, batch: int, rope: RopeMode) -> Segment:
        """What a layer's queries of `batch` sequences attend to; rope: how they count the distance of what stands first."""
        ...


@dataclass(frozen=True)
class ExtraEmbeds:
    """Inputs of the first layer that are put into a text where no token has such ones.

    rows:   float [S, d_model];  at: tokens of the text that stand before them
    origin: what they were made of, as the trace tells it
    """

    rows: Tensor
    kind: Kind
    at: int = 0
    origin: str = ""


@dataclass(frozen=True, kw_only=True)
class UnreportedSegment(DenseSegment):
    """Entries that no policy hears of: they take their part of the attention, and what a row gives to them is missing from the
    weights that are told of it, which then sum to less than 1."""

    def attend(
        self, q: Tensor, mask: Tensor | None, scale: float, cap: float | None = None, *, weights: bool = False
    ) -> PartialAttention:
        part = super().attend(q, mask, scale, cap)
        return part._replace(weights=upcast_half(q).new_zeros(*q.shape[:4], 0)) if weights else part


@dataclass(frozen=True)
class ExtraEntries:
    """Entries without tokens. They lie beside the stores, whose slots and positions are those of the text alone: so nothing can
    evict, score, pack or count them. All sequences of a batch read the same ones.

    kv: by layer float [2, 1, H_kv, S, D], keys rotated to where they stand
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
        """What it holds in the cache."""
        return self.kv

    def __deepcopy__(self, memo: object) -> ExtraEntries:
        return self

    def segment(self, layer: int, batch: int, rope: RopeMode) -> Segment:
        """Those before the text stand right before its first entries, however their distance is counted; others where they do
        in the text."""
        k, v = self.kv[layer].expand(-1, batch, -1, -1, -1)
        return UnreportedSegment(k=k, v=v, rope=rope if self.at == 0 else "original")


@dataclass(frozen=True)
class ExtraState:
    """What stands for entries without holding any, by layer; it lies with the model's weights."""

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
