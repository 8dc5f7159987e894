"""LayerStack: the layers of a decoder, with what they share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from .gates import Gates
from .layer import Layer
from .matrix import linear
from .norm import rms_norm
from .rope import RopeTable


@dataclass(slots=True)
class LayerStack:
    """The layers of a decoder, and what each forward pass needs to run them. A decoder makes one for each pass.

    spec:       the shape of the model
    rope:       the rotation of the layers without a window
    local_rope: the rotation of the layers with a window, perhaps the same table
    gates:      factors for heads, feed-forward columns and blocks
    """

    spec: ModelSpec
    layers: list[Layer]
    rope: RopeTable
    local_rope: RopeTable
    gates: Gates

    def rope_of(self, i: int) -> RopeTable:
        """The rotation of layer i."""
        return self.rope if self.spec.window(i) is None else self.local_rope

    def ffn(self, i: int, x: Tensor) -> Tensor:
        """x [B, T, d_model] plus the feed-forward block of layer i."""
        w = self.layers[i]
        if not self.spec.ff_at(i):
            return self.add_bias(x, w.down_bias, w.mlp_post, i, 1)
        y = self.gates.gate_columns(i, w.activations(x, self.spec))
        return self.add(x, linear(y, w.down, w.down_bias), w.mlp_post, i, 1)

    def add(self, x: Tensor, y: Tensor, norm: Tensor | None, i: int, block: int) -> Tensor:
        """x plus the output y of a block of layer i (0: attention, 1: feed-forward), both [B, T, d_model].

        The post-norm `norm`, where the model has one, and the gate of the block apply to y first. y may be overwritten.
        """
        return self.gates.gate_block(
            i, block, y if norm is None else rms_norm(y, norm, self.spec.norm_eps)
        ).add_(x)

    def add_bias(self, x: Tensor, bias: Tensor | None, norm: Tensor | None, i: int, block: int) -> Tensor:
        """`add` for a block that was cut away, up to the bias of its last product."""
        return x if bias is None else self.add(x, bias.expand_as(x).clone(), norm, i, block)
