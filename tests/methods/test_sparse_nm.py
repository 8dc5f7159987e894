"""N:M sparsity: exactly N of every M weights stay, the largest ones, and bytes are those of values and places."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.weights import CalibrationData, MatrixPlace
from decodescope.engine.methods.weights.sparse_nm import SparseNM
from decodescope.engine.model.layers.matrix import linear
from tests import toys

PLACE = MatrixPlace(0, "qkv")


def weight() -> Tensor:
    return torch.randn(24, 64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(("keep", "group"), [(2, 4), (1, 4), (3, 8), (1, 2)])
def test_exactly_n_of_every_m_stay_the_largest(keep: int, group: int) -> None:
    w = weight()
    one = SparseNM(kept_weights=keep, group=group).compress_matrix(PLACE, w)
    dense = one.dense_weight()  # type: ignore[attr-defined] # a Matrix
    for row, kept in zip(
        w.unflatten(1, (-1, group)).flatten(0, 1), dense.unflatten(1, (-1, group)).flatten(0, 1), strict=True
    ):
        assert int((kept != 0).sum()) == keep
        largest = sorted(row.abs().tolist(), reverse=True)[:keep]
        assert sorted(kept.abs().tolist(), reverse=True)[:keep] == largest
    assert torch.equal(dense[dense != 0], w[dense != 0])
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(4))
    assert torch.allclose(linear(x, one), x @ dense.T, atol=1e-6)
    bits = (group - 1).bit_length()
    assert one.nbytes == 24 * (64 * keep // group * 4 + bits * -(-64 * keep // group // 8))


def test_two_of_four_take_17_of_32_bits_a_weight_of_the_model() -> None:
    decoder = toys.decoder().pack_weights()
    cut = SparseNM().transform(decoder, CalibrationData(lambda: torch.zeros(0)))
    plain = sum(
        getattr(layer, x).numel() * 4 for layer in decoder.layers for x in ("qkv", "out", "gate_up", "down")
    )
    stored = sum(getattr(layer, x).nbytes for layer in cut.layers for x in ("qkv", "out", "gate_up", "down"))
    assert stored / plain == 17 / 32


def test_what_leaves_nothing_to_go_is_refused() -> None:
    with pytest.raises(ParamError, match="nothing would go"):
        SparseNM(kept_weights=4).compress_matrix(PLACE, weight())
    with pytest.raises(ParamError, match="must divide the 60 inputs of qkv of layer 0"):
        SparseNM(kept_weights=2, group=16).compress_matrix(PLACE, weight()[:, :60])
