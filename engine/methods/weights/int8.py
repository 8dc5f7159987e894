"""int8: every matrix is stored in rows of whole numbers of 8 bits."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.weights import MatrixPlace, MatrixTransform
from decodescope.engine.model.layers.compressed_matrices import Int8Matrix

from .shared.rounding import quantise_rows


@component
class EightBits(MatrixTransform):
    """Symmetric quantisation with a scale per row: s = max|w| / 127, q = round(w / s). w is read as q s, so |w - q s| <= s / 2,
    before q s is rounded to the model's type. Activations stay as they are; so do norms, biases, the embedding, and the head
    unless requested.

    A weight takes 8 bits, and a row one number of the model's type. The CPU has an operator that multiplies with q directly, in
    float32, bfloat16 and float16. The method reads no text. w / s is rounded with the stored scale, in a half type too.
    """

    title = "8 bits"
    source = "torchao, Int8WeightOnlyConfig (github.com/pytorch/ao)"

    def stored_bits(self, bits: int) -> float:
        return 8.0

    def compress_matrix(self, place: MatrixPlace, weight: Tensor) -> Tensor:
        return Int8Matrix.from_codes(*quantise_rows(weight))
