"""N:M sparsity: of every M weights that stand side by side the N largest stay."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.weights import MatrixPlace, MatrixTransform
from decodescope.engine.model.layers.compressed_matrices import SparseMatrix


@component
class SparseNM(MatrixTransform):
    """Of `group` consecutive inputs of a row the `keep` with the largest absolute values stay as they are, the others are 0.
    Kept are the values and the place of each in its group, in as few bits as the place takes (2 for four places).

    In float32 2 of 4 takes 17 bits a weight instead of 32, in bfloat16 9 instead of 16. On a CPU it is smaller and not faster:
    there is no operator that multiplies with it, so the zeros are put in for each product. Lossy, without training or text:
    what is small may matter, which is why those who use 2:4 train on with it.
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
            return weight  # of a block that was cut
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
