"""int4: every matrix in groups of numbers of 4 bits."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.weights import MatrixPlace, MatrixTransform
from decodescope.engine.model.layers.compressed_matrices import Int4Matrix

from .shared.rounding import check_group, quantise_groups


@component
class FourBits(MatrixTransform):
    """Asymmetric, a scale and an offset for `group` inputs of a row that stand side by side: s = (max - min) / 15 and
    q = round((w - min) / s).
    w is read as (q - 8) s + z with z = min + 8 s. s and z are numbers of the model's type, and s is as large as these need to
    reach every w: so w is off by s / 2 at most, before it is rounded to that type. Equal numbers have s = 0 and stay as they
    are. Activations stay as they are, as do norms, biases, the embedding, and the head unless it is asked for.

    4 + 2 b / group bits a weight, b being those of the model's type: 5 in float32 and 4.5 in bfloat16 with groups of 64. The
    CPU has an operator for these groups and rows in multiples of 16; other shapes are multiplied the plain way. The offset
    is a number as in torchao, not the whole number of the older formula, which must keep 0 among its levels.
    """

    title = "4 bits"
    source = "torchao, Int4WeightOnlyConfig (github.com/pytorch/ao)"

    group: int = param(
        64, choices=(32, 64, 128, 256), unit="weights", help="consecutive inputs that share scale and offset"
    )

    def compress_matrix(self, place: MatrixPlace, weight: Tensor) -> Tensor:
        return Int4Matrix.from_codes(
            *quantise_groups(weight, check_group(self.group, weight, place, self.name), 4, middle=8)
        )
