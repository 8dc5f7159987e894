"""Target: the frozen model that heads are trained on, and its values for a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.model.attention.attention import soft_cap, upcast_half
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.drafting.draft_vocabulary import fused_layers
from decodescope.engine.model.layers.matrix import unpack
from decodescope.engine.model.layers.norm import single_weight

READ = 256  # places that go through the vocabulary matrix at once where nothing but the choice is kept


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

    def unembed_ids(self, feature: Tensor, ids: Tensor) -> Tensor:
        """The logits [..., K] of `unembed` for ids int64 [K] alone."""
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

    best:    int64 [B, T], the model's likeliest token behind each place; None: whoever needs it asks the features
    counted: bool [B, T], the tokens whose guesses count; None: all
    """

    ids: Tensor
    embedded: Tensor
    early: Tensor
    feature: Tensor
    fused: Tensor
    best: Tensor | None = None
    counted: Tensor | None = None


@torch.no_grad()
def read_states(target: HeadTarget, ids: Tensor, layer: int = 0) -> ModelStates:
    """Run the model over ids; `layer`: the layer whose input states are wanted."""
    wanted = (layer, *fused_layers(target.n_layers))
    (early, *three), feature = target.read(ids, wanted)
    return ModelStates(
        ids, target.embed(ids).float(), early.float(), feature.float(), torch.cat(three, -1).float()
    )


class DecoderTarget:
    """A loaded model as the target of a training."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.width = decoder.spec.d_model
        self.n_layers = decoder.spec.n_layers
        self.vocab = decoder.spec.vocab
        self.device = decoder.device
        self.final_norm = single_weight(decoder.norm, self.width).float()
        self._embedding = unpack(decoder.embed)
        self._unembedding = self._embedding if decoder.spec.tied else unpack(decoder.head)

    def embed(self, ids: Tensor) -> Tensor:
        """The embeddings [..., d] of ids int64 [...], as drafters read them: without the model's own factor."""
        return F.embedding(ids, self._embedding)

    def read(self, ids: Tensor, layers: Sequence[int]) -> tuple[list[Tensor], Tensor]:
        """The states [B, T, d] that enter each of `layers`, and the final feature [B, T, d], for ids int64 [B, T]."""
        rows, length = ids.shape
        probe = Probe(Needs(hidden=frozenset([*layers, "final"])))
        positions = torch.arange(length, device=ids.device)[None].expand(rows, length)
        feed = Feed(ids, positions, logits="last", highest=length - 1)
        self.decoder.forward(feed, None, probe)
        return [probe.hidden[layer] for layer in layers], probe.hidden["final"]

    def unembed(self, feature: Tensor) -> Tensor:
        """Logits [..., V] of final features [..., d]; gradients reach the features."""
        return self._logits(feature, self._unembedding[: self.decoder.vocab])

    def unembed_ids(self, feature: Tensor, ids: Tensor) -> Tensor:
        """The logits [..., K] of `unembed` for ids int64 [K] alone."""
        return self._logits(feature, self._unembedding[ids])

    def unembedding_rows(self, ids: Tensor) -> Tensor:
        """float32 [K, d]: the rows of the unembedding for ids int64 [K]."""
        return self._unembedding[ids].float()

    def _logits(self, feature: Tensor, rows: Tensor) -> Tensor:
        return soft_cap(upcast_half(F.linear(feature.to(rows.dtype), rows)), self.decoder.spec.logit_cap)


@torch.no_grad()
def likeliest_tokens(target: HeadTarget, feature: Tensor) -> Tensor:
    """int64 [B, T]: the target's likeliest token behind each place, of final features [B, T, d], a part at a time."""
    flat = feature.flatten(0, 1)
    return torch.cat([target.unembed(part).argmax(-1) for part in flat.split(READ)]).view(feature.shape[:2])
