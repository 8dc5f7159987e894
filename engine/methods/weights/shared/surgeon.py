"""Surgeon: structures of a matrix's inputs taken out one by one by the second-order rule, the others making up for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import apply_gates
from decodescope.engine.model.layers.gates import Gates

from .texts import text_logits

RIDGE = 0.01  # of the mean of the diagonal, added to it


@dataclass(frozen=True)
class PruningLevel:
    """A matrix with some structures gone. gone: their numbers, in the order in which they went;  inputs: those that stay;
    left: [out, inputs], what it became;  error: what its products are off on the text, as a share of what they would be without
    the whole matrix"""

    gone: tuple[int, ...]
    inputs: list[int]
    left: Tensor
    error: float

    def weight(self, inner: int) -> Tensor:
        """[out, inner], zero where something went."""
        whole = self.left.new_zeros(len(self.left), inner)
        whole[:, self.inputs] = self.left
        return whole


@dataclass(frozen=True)
class LatencyResult:
    """What was chosen. levels: by layer, of attention and feed-forward block;  us: microseconds of a pass, predicted;  before:
    of one of the whole model;  kl: to the whole model's law on the text;  tried: other plans that were looked at"""

    levels: list[tuple[PruningLevel, PruningLevel]]
    us: float
    before: float
    kl: float
    tried: int


def input_grams(model: Decoder, rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """By layer, X^T X of what enters the output projections [H D, H D] and the projections down [F, F], of texts int64 [N, T],
    in double precision."""
    watching = _GramGates()
    with torch.no_grad():
        for row in rows.split(4):
            text_logits(apply_gates(model, watching), row)
    return ([watching.sums[i, block] for i in range(model.spec.n_layers)] for block in range(2))  # type: ignore[return-value] # two


class _GramGates(Gates):
    """Open gates that add up what passes them."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "sums", {})

    sums: dict[tuple[int, int], Tensor]

    def gate_heads(self, i: int, y: Tensor) -> Tensor:
        return self._add_gram(i, 0, y)

    def gate_columns(self, i: int, y: Tensor) -> Tensor:
        return self._add_gram(i, 1, y)

    def _add_gram(self, i: int, block: int, y: Tensor) -> Tensor:
        x = y.reshape(y.shape[0] * y.shape[1], -1)
        gram = (x.t() @ x).double()
        self.sums[i, block] = gram if (i, block) not in self.sums else self.sums[i, block] + gram
        return y


def pruning_levels(weight: Tensor, gram: Tensor, width: int, counts: Sequence[int]) -> list[PruningLevel]:
    """Of a matrix [out, in] whose structures are `width` inputs side by side: what is left when so many are gone, for each of
    `counts`, ascending. H = X^T X + ridge. The structure S goes for which tr(W_S (H^-1_SS)^-1 W_S^T) is smallest, and
    W -= W_S (H^-1_SS)^-1 H^-1_S: is what loses least without it."""
    full, many = weight.double(), weight.shape[1] // width
    ridge = RIDGE * gram.diagonal().mean().clamp_min(1e-12)
    inverse = torch.linalg.inv(gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device))
    whole = _squared_output(full, gram).clamp_min(1e-300)
    w = full.clone()
    there = [*range(many)]
    gone = list[int]()
    came = list[PruningLevel]()
    for count in counts:
        while len(gone) < count:
            at = _cheapest_structure(w, inverse, width)
            w, inverse = _remove_structure(w, inverse, width, at)
            gone.append(there.pop(at))
        level = PruningLevel(tuple(gone), _input_columns(there, width), w.to(weight.dtype), 0.0)
        off = _squared_output(level.weight(weight.shape[1]).double() - full, gram) / whole
        came.append(replace(level, error=float(off)))
    return came


def _squared_output(w: Tensor, gram: Tensor) -> Tensor:
    """The sum of squares of the products of w with what gave the gram."""
    return (w @ gram * w).sum()


def _input_columns(structures: Sequence[int], width: int) -> list[int]:
    return [x for s in structures for x in range(s * width, (s + 1) * width)]


def removal_errors(w: Tensor, inverse: Tensor, width: int) -> Tensor:
    """float64 [structures]: what the products of w would be off without each of them, at best, in squares."""
    if width == 1:
        return w.square().sum(0) / inverse.diagonal()
    blocks = (
        inverse.unflatten(0, (-1, width)).unflatten(2, (-1, width)).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    )
    parts = w.unflatten(1, (-1, width)).transpose(0, 1)  # [structures, out, width]
    losses: Tensor = (torch.linalg.solve(blocks, parts.transpose(1, 2)) * parts.transpose(1, 2)).sum((1, 2))
    return losses


def _cheapest_structure(w: Tensor, inverse: Tensor, width: int) -> int:
    return int(removal_errors(w, inverse, width).argmin())


def _remove_structure(w: Tensor, inverse: Tensor, width: int, at: int) -> tuple[Tensor, Tensor]:
    """Both without structure `at`, the rest made up for it."""
    s = slice(at * width, (at + 1) * width)
    half = torch.linalg.solve(inverse[s, s], inverse[s])  # (H^-1_SS)^-1 H^-1_S:
    rest = torch.cat(
        [torch.arange(s.start, device=w.device), torch.arange(s.stop, w.shape[1], device=w.device)]
    )
    w, inverse = w - w[:, s] @ half, inverse - inverse[:, s] @ half
    return w[:, rest], inverse[rest][:, rest]
