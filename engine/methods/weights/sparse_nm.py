"""N:M sparsity: of every M consecutive weights, the N largest stay."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.weights import MatrixPlace, MatrixTransform
from decodescope.engine.model.layers.compressed_matrices import SparseMatrix


@component
class SparseNM(MatrixTransform):
    """In each group of `group` consecutive inputs of a row, keep the `kept_weights` largest absolute values and set the others
    to 0.

    Stored are the kept values and the place of each in its group, in as few bits as the place needs (2 for four places).

    2 of 4 takes 17 bits per weight instead of 32 in float32, and 9 instead of 16 in bfloat16. On a CPU it is smaller and not
    faster: no operator multiplies with it, so the zeros are restored for each product. Lossy, without training or text. Small
    weights may matter, so users of 2:4 continue training with it.
    """

    title = "N:M sparsity"
    source = "Mishra et al. 2021, arXiv:2104.08378; by magnitude, without the training that follows there"

    kept_weights: int = param(
        2, low=1, high=15, unit="weights", help="number of largest weights that stay in each group (N)"
    )
    group: int = param(
        4, choices=(2, 4, 8, 16), unit="weights", help="consecutive inputs of a row that form a group (M)"
    )

    def compress_matrix(self, place: MatrixPlace, weight: Tensor) -> Tensor:
        if self.kept_weights >= self.group:
            raise ParamError(
                f"{self.name}.kept_weights = {self.kept_weights} of a group of {self.group}: nothing would go; keep fewer."
            )
        if not weight.numel():
            return weight  # a matrix of a removed block
        if weight.shape[1] % self.group:
            raise ParamError(
                f"{self.name}.group = {self.group}: must divide the {weight.shape[1]} inputs of {place}."
            )
        groups = weight.unflatten(1, (-1, self.group))
        places = (
            groups.abs()
            .sort(dim=2, descending=True, stable=True)
            .indices[..., : self.kept_weights]
            .sort(dim=2)
            .values
        )
        return SparseMatrix.from_values(groups.gather(2, places), places, self.group)
