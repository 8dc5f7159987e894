"""Gates: a number for each head, feed-forward column and block of a model, which its part of the pass is multiplied by."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec


@dataclass(frozen=True)
class Gates:
    """A gate is before the product that sums its part up. A head's context times its gate goes into the output projection, an
    activation times its gate into the projection down, and a block's output is multiplied by the block's gate. So
    a gate of 1 changes nothing, and one of 0 removes exactly that part. None: all 1. Soft gates carry a gradient.

    head: float [L, H];  ffn: float [L, F];  sub: float [L, 2], attention and feed-forward block. Of a layer that was cut
    already the first are its own, as many as it has
    """

    head: Tensor | None = None
    ffn: Tensor | None = None
    sub: Tensor | None = None

    def check(self, spec: ModelSpec) -> None:
        """Raises ValueError if a table has not the model's shape."""
        wanted = {
            "head": (spec.n_layers, spec.n_heads),
            "ffn": (spec.n_layers, spec.d_ff),
            "sub": (spec.n_layers, 2),
        }
        for name, shape in wanted.items():
            table = getattr(self, name)
            if table is not None and tuple(table.shape) != shape:
                raise ValueError(
                    f"Gates.{name} is {list(table.shape)}; for {spec.name} it must be {list(shape)}."
                )

    def to_device(self, device: torch.device) -> Gates:
        """The same on a device, with their gradient; themselves where they are there."""
        tables = [None if x is None else x.to(device) for x in (self.head, self.ffn, self.sub)]
        return (
            self
            if all(x is y for x, y in zip(tables, (self.head, self.ffn, self.sub), strict=True))
            else Gates(*tables)
        )

    def gate_heads(self, i: int, y: Tensor) -> Tensor:
        """The contexts [B, T, H, D] of layer i times their gates."""
        return y if self.head is None else y * self.head[i, : y.shape[2], None].to(y.dtype)

    def gate_columns(self, i: int, y: Tensor) -> Tensor:
        """The activations [B, T, F] of layer i times their gates."""
        return y if self.ffn is None else y * self.ffn[i, : y.shape[2]].to(y.dtype)

    def gate_block(self, i: int, block: int, y: Tensor) -> Tensor:
        """The output of a block of layer i, [B, T, d_model], times its gate."""
        return y if self.sub is None else y * self.sub[i, block].to(y.dtype)


OPEN = Gates()
