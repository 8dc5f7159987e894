"""int4: every matrix is stored in groups of numbers of 4 bits."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.weights import MatrixPlace, MatrixTransform
from decodescope.engine.model.layers.compressed_matrices import Int4Matrix

from .shared.rounding import check_group, quantise_groups


@component
class FourBits(MatrixTransform):
    """Asymmetric quantisation, with a scale and an offset per group of `group` adjacent inputs of a row. s = (max - min) / 15
    and q = round((w - min) / s). w is read as (q - 8) s + z with z = min + 8 s. s and z are numbers of the model's type, and s
    is large enough to reach every w with them. So the error of w is at most s / 2, before it is rounded to that type. Equal
    numbers have s = 0 and stay as they are. Activations stay as they are, as do norms, biases, the embedding, and the head
    unless requested.

    A weight takes 4 + 2 b / group bits, where b is the bits of the model's type: 5 in float32 and 4.5 in bfloat16 with groups
    of 64. The CPU has an operator for these groups and for rows in multiples of 16; other shapes use the plain product. The
    offset is a float as in torchao, not the integer of the older formula, which must keep 0 among its levels.
    """

    title = "4 bits"
    source = "torchao, Int4WeightOnlyConfig (github.com/pytorch/ao)"

    group: int = param(
        64, choices=(32, 64, 128, 256), unit="weights", help="consecutive inputs that share scale and offset"
    )

    def stored_bits(self, bits: int) -> float:
        return 4 + 2 * bits / self.group

    def compress_matrix(self, place: MatrixPlace, weight: Tensor) -> Tensor:
        return Int4Matrix.from_codes(
            *quantise_groups(weight, check_group(self.group, weight, place, self.name), 4, middle=8)
        )
