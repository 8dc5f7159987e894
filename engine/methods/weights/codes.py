"""codes: every matrix in groups of numbers of 2 or 3 bits."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.weights import MatrixPlace, MatrixTransform
from decodescope.engine.model.layers.compressed_matrices import CodeMatrix as Stored

from .shared.rounding import check_group, quantise_groups


@component
class Codes(MatrixTransform):
    """A scale and an offset for `group` inputs of a row that stand side by side: s = (max - min) / (2^k - 1) and
    q = round((w - min) / s), of k bits. w is read as q s + min, so it is off by s / 2 at most, before it is rounded to the
    model's type, in which s is stored. Equal numbers have s = 0 and stay as they are, as does everything else.

    k + 2 b / group bits a weight, b being those of the model's type: with 3 bits and groups of 32 they are 5 in float32, 4 in
    bfloat16. Bit i of eight numbers stands in one byte, so 3 bits take 3. No operator reads that: the numbers are made for
    each product and then gone. Fewer bytes, and slower. At 2 bits four levels are left; plain rounding loses the model there,
    and what tunes codes to a text (Egiazarian et al. 2024, arXiv:2401.06118) begins from codes like these.
    """

    title = "Codes of 2 or 3 bits"
    source = "torchao, IntxWeightOnlyConfig (github.com/pytorch/ao)"

    bits: int = param(
        3,
        choices=(2, 3),
        unit="bits",
        help="precision of a weight; scale and offset of its group are stored in addition",
    )
    group: int = param(
        32, choices=(16, 32, 64, 128), unit="weights", help="consecutive inputs that share scale and offset"
    )

    def compress_matrix(self, place: MatrixPlace, weight: Tensor) -> Tensor:
        return Stored.from_codes(
            *quantise_groups(weight, check_group(self.group, weight, place, self.name), self.bits),
            k=self.bits,
        )
