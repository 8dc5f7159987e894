"""Target: the frozen model that heads are trained on, and its values for a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from decodescope.engine.model.heads.drafting.eagle3 import fused_layers


class HeadTarget(Protocol):
    """A frozen model, as the training of a head sees it.

    width: of its states, d;  n_layers: how many layers it has;  vocab: V, how many ids have logits
    final_norm: float [d], the weights of the norm in front of the unembedding;  device: where the weights are
    """

    width: int
    n_layers: int
    vocab: int
    final_norm: Tensor
    device: torch.device

    def embed(self, ids: Tensor) -> Tensor:
        """The embeddings [..., d] of ids int64 [...], as heads read them."""
        ...

    def read(self, ids: Tensor, layers: Sequence[int]) -> tuple[list[Tensor], Tensor]:
        """The states [B, T, d] that enter each of `layers`, and the final feature [B, T, d], for ids int64 [B, T]."""
        ...

    def unembed(self, feature: Tensor) -> Tensor:
        """Logits [..., V] of final features [..., d]; gradients reach the features."""
        ...

    def unembedding_rows(self, ids: Tensor) -> Tensor:
        """float [K, d]: the rows of the unembedding for ids int64 [K]."""
        ...


@dataclass
class ModelStates:
    """The frozen model's values for ids int64 [B, T].

    They are embeddings, the states that enter a layer, the final features [B, T, d] each, and the states of three layers that
    EAGLE-3 fuses [B, T, 3 d]. The feature is the last layer's output after the final norm; the unembedding turns it into the
    model's distribution of the next token.
    """

    ids: Tensor
    embedded: Tensor
    early: Tensor
    feature: Tensor
    fused: Tensor


@torch.no_grad()
def read_states(target: HeadTarget, ids: Tensor, layer: int = 0) -> ModelStates:
    """Run the model over ids; `layer`: the layer whose input states are wanted."""
    wanted = (layer, *fused_layers(target.n_layers))
    (early, *three), feature = target.read(ids, wanted)
    return ModelStates(
        ids, target.embed(ids).float(), early.float(), feature.float(), torch.cat(three, -1).float()
    )
