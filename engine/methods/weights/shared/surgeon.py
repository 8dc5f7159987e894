"""Surgeon: remove structures of a matrix's inputs one by one by the second-order rule; the others compensate for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import apply_gates
from decodescope.engine.model.layers.gates import Gates

from .texts import text_logits

RIDGE = 0.01  # share of the diagonal's mean that is added to the diagonal


@dataclass(frozen=True)
class PruningLevel:
    """A matrix with some structures removed.

    gone: their numbers, in the order of removal;  inputs: the remaining inputs;  left: [out, inputs], the remaining matrix;
    error: the error of its products on the text, as a share of the error without the whole matrix
    """

    gone: tuple[int, ...]
    inputs: list[int]
    left: Tensor
    error: float

    def weight(self, inner: int) -> Tensor:
        """The matrix [out, inner], zero for removed inputs."""
        whole = self.left.new_zeros(len(self.left), inner)
        whole[:, self.inputs] = self.left
        return whole


@dataclass(frozen=True)
class LatencyResult:
    """The chosen plan.

    levels: by layer, of attention and feed-forward block;  us: predicted microseconds of a pass;  before: those of the whole
    model;  kl: to the whole model's distribution on the text;  tried: number of other plans tried
    """

    levels: list[tuple[PruningLevel, PruningLevel]]
    us: float
    before: float
    kl: float
    tried: int


def input_grams(model: Decoder, rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """X^T X of the inputs of each layer's output and down projection, [H D, H D] and [F, F], in double precision.

    The inputs come from texts int64 [N, T].
    """
    watching = _GramGates()
    with torch.no_grad():
        for row in rows.split(4):
            text_logits(apply_gates(model, watching), row)
    return ([watching.sums[i, block] for i in range(model.spec.n_layers)] for block in range(2))  # type: ignore[return-value] # two


class _GramGates(Gates):
    """Open gates that accumulate X^T X of their inputs."""

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
    """The remaining matrix for each number of removed structures in `counts`, ascending.

    The matrix is [out, in], and a structure is `width` adjacent inputs. H = X^T X + ridge. The structure S with the smallest
    tr(W_S (H^-1_SS)^-1 W_S^T) is removed. The update W -= W_S (H^-1_SS)^-1 H^-1_S: loses least without it.
    """
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
    """The sum of squares of the products of w with the inputs of the gram matrix."""
    return (w @ gram * w).sum()


def _input_columns(structures: Sequence[int], width: int) -> list[int]:
    return [x for s in structures for x in range(s * width, (s + 1) * width)]


def removal_errors(w: Tensor, inverse: Tensor, width: int) -> Tensor:
    """float64 [structures]: the least squared error of the products of w without each structure."""
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
    """Return w and inverse without structure `at`, with the rest compensated for it."""
    s = slice(at * width, (at + 1) * width)
    half = torch.linalg.solve(inverse[s, s], inverse[s])  # (H^-1_SS)^-1 H^-1_S:
    rest = torch.cat(
        [torch.arange(s.start, device=w.device), torch.arange(s.stop, w.shape[1], device=w.device)]
    )
    w, inverse = w - w[:, s] @ half, inverse - inverse[:, s] @ half
    return w[:, rest], inverse[rest][:, rest]
