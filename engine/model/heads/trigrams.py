"""Trigram layers: corrections of a model's first layers, so that they can read three tokens alone."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import ClassVar

import torch
from torch import nn

from ..forward.decoder import Decoder
from ..layers.matrix import pack, unpack
from .base import Head

MATRICES = ("qkv", "out", "gate_up", "down")


class TrigramLayers(Head):
    """A map of low rank on each matrix of the first layers, up to the one that has number `layer`: W + up down. With these
    the layers read a token and its neighbours alone and predict what enters `layer` in the whole text. `up` begins at zero: the
    layers as they are. Each matrix keeps its shape, so the layers cost what they cost before.

    For W [out, in] of each layer: NAME_down float [layer, rank, in], NAME_up [layer, out, rank].
    """

    kind = "trigrams"
    of_target: ClassVar[tuple[str, ...]] = ("d_ff", "n_heads", "n_kv_heads", "head_dim")

    def __init__(
        self, d: int, layer: int, rank: int, d_ff: int, n_heads: int, n_kv_heads: int, head_dim: int
    ) -> None:
        super().__init__(
            d=d, layer=layer, rank=rank, d_ff=d_ff, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim
        )
        inner = n_heads * head_dim
        sizes = {
            "qkv": (inner + 2 * n_kv_heads * head_dim, d),
            "out": (d, inner),
            "gate_up": (2 * d_ff, d),
            "down": (d, d_ff),
        }
        for name, (out, width) in sizes.items():
            setattr(self, f"{name}_down", nn.Parameter(torch.randn(layer, rank, width) * width**-0.5))
            setattr(self, f"{name}_up", nn.Parameter(torch.zeros(layer, out, rank)))

    def apply_to(self, decoder: Decoder) -> Decoder:
        """The model with these corrections in its first layers; it shares all other weights."""
        layers = list(decoder.layers)
        for i in range(self.shape["layer"]):
            changed = {}
            for name in MATRICES:
                weight = getattr(layers[i], name)
                down, up = getattr(self, f"{name}_down")[i], getattr(self, f"{name}_up")[i]
                whole = unpack(weight) + (up @ down).to(decoder.dtype)
                changed[name] = pack(whole) if weight.is_mkldnn else whole
            layers[i] = replace(layers[i], **changed)
        decoder = copy.copy(decoder)
        decoder.layers = layers
        return decoder
