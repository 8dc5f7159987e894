"""codes: every matrix is stored in groups of numbers of 2 or 3 bits."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.weights import MatrixPlace, MatrixTransform
from decodescope.engine.model.layers.compressed_matrices import CodeMatrix as Stored

from .shared.rounding import check_group, quantise_groups


@component
class Codes(MatrixTransform):
    """Store a scale and an offset per group of `group` adjacent inputs of a row: s = (max - min) / (2^k - 1) and q = round((w -
    min) / s), of k bits. w is read as q s + min, so its error is at most s / 2, before it is rounded to the model's type. s is
    stored in this type. Equal numbers have s = 0 and stay as they are, as does everything else.

    A weight takes k + 2 b / group bits, where b is the bits of the model's type. With 3 bits and groups of 32 these are 5 in
    float32 and 4 in bfloat16. Bit i of eight numbers is in one byte, so 3 bits take 3 bytes per eight numbers. No operator
    reads this format: the numbers are unpacked for each product and then dropped. It takes fewer bytes and is slower. At 2 bits
    there are four levels, and plain rounding destroys the model. Methods that tune codes to a text (Egiazarian et al. 2024,
    arXiv:2401.06118) begin from codes like these.
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
