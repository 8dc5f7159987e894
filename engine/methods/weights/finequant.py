"""FineQuant: 4 bits per weight, in groups that are as small as each matrix needs."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.weights import MatrixPlace, MatrixTransform
from decodescope.engine.model.layers.compressed_matrices import GROUPS, Int4Matrix

from .shared.rounding import quantise_groups


@component
class FineQuant(MatrixTransform):
    """Quantise to 4 bits with a scale and an offset per group; each matrix chooses its own group size.

    R(g) is the mean, over groups of g inputs, of the largest |w|; it measures the effect of outliers on the steps. Groups are
    halved while R falls below `max_range_ratio` times its previous value and the error falls too. A matrix without outliers
    keeps coarse groups and their few bytes.

    A weight takes 4 + 2 b / g bits, where b is the bits of the model's type. The method reads no text. Deviations: the paper
    begins with one scale per row. Here groups begin with the largest size that the CPU's operator takes and that divides the
    rows (256, 128, 64 or 32), or with the row if none does. The paper does not state how much the range has to shrink; this
    rule is ours. A smaller group has a smaller error bound, but not always a smaller error, so the error is measured.
    """

    title = "FineQuant"
    source = "Kim et al. 2023, arXiv:2308.09723, section 3"

    max_range_ratio: float = param(
        0.9,
        low=0.0,
        high=1.0,
        step=0.01,
        help="halve groups while their mean range falls below this share of its former value",
    )
    min_group: int = param(32, choices=GROUPS, unit="weights", help="size of the smallest group")

    def compress_matrix(self, place: MatrixPlace, weight: Tensor) -> Tensor:
        return Int4Matrix.from_codes(*quantise_groups(weight, self.group_of(weight), 4, middle=8))

    def group_of(self, weight: Tensor) -> int:
        """The group size of a matrix [out, in]."""
        sizes = [
            x for x in sorted(GROUPS, reverse=True) if weight.shape[1] % x == 0 and x >= self.min_group
        ] or [weight.shape[1]]
        chosen = sizes[0]
        reach = group_range(weight, sizes[0])
        off = rounding_error(weight, sizes[0])
        for size in sizes[1:]:
            smaller, less = group_range(weight, size), rounding_error(weight, size)
            if smaller >= self.max_range_ratio * reach or less > off:
                break
            chosen = size
            reach = smaller
            off = less
        return chosen


def group_range(weight: Tensor, group: int) -> float:
    """R of that group size."""
    mean_range: float = weight.double().unflatten(1, (-1, group)).abs().amax(2).mean().item()
    return mean_range


def rounding_error(weight: Tensor, group: int) -> float:
    """The mean square error of 4 bits in groups of that size."""
    q, scale, zero = (x.double() for x in quantise_groups(weight, group, 4, middle=8))
    near = (q.unflatten(1, (-1, group)) - 8) * scale[..., None] + zero[..., None]
    error: float = (near.flatten(1) - weight.double()).square().mean().item()
    return error
