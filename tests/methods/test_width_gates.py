"""Width gates: the requested share of weights is removed, and the remaining model equals the masked model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from decodescope.engine.decoding.bases.pruning import replace_layer_matrices
from decodescope.engine.decoding.bases.weights import CalibrationData, MatrixPlace
from decodescope.engine.methods.weights.shared.gate_sizes import GateSizes
from decodescope.engine.methods.weights.shared.texts import calibration_texts, text_logits
from decodescope.engine.methods.weights.width_gates import WidthGates
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import apply_gates, slice_by_gates
from decodescope.engine.model.layers.gates import Gates
from decodescope.engine.model.layers.matrix import unpack
from tests import toys

TEXT = CalibrationData(
    lambda: torch.randint(toys.SPEC.vocab, (512,), generator=torch.Generator().manual_seed(3))
)


def held(decoder: Decoder) -> int:
    """The number of weights in the matrices of the layers."""
    return sum(
        x.numel() for layer in decoder.layers for x in (layer.qkv, layer.out, layer.gate_up, layer.down)
    )


@pytest.mark.parametrize(("cut", "rate"), [(0.3, 0.3), (0.55, 0.3)])
def test_the_expected_share_ends_at_the_target(cut: float, rate: float) -> None:
    decoder, part = (
        toys.decoder(dtype=torch.float64),
        WidthGates(cut_share=cut, columns_per_gate=8, steps=60, learning_rate=rate),
    )
    (heads, groups), others, gone = part.train_gates(decoder, calibration_texts(TEXT, 48))
    assert (
        gone[0] < 0.05
        and not others
        and part.target_share(0)
        < part.target_share(20)
        < part.target_share(30)
        == part.target_share(59)
        == cut
    )
    assert abs(gone[-1] - cut) < 0.01
    open_, shut = (torch.cat([heads.flatten(), groups.flatten()]) > x for x in (1.0, -1.0))
    assert open_.sum() > 3 and (~shut).sum() > 3, "gates part"


def test_what_really_goes_is_counted_in_weights() -> None:
    decoder = toys.decoder()
    sizes, g = GateSizes(decoder.spec, 8), torch.Generator().manual_seed(1)
    assert sizes.all == held(decoder)
    for share in (0.0, 0.2, 0.5, 0.8):
        heads, groups = (torch.randn(x, generator=g, dtype=torch.float64) for x in sizes.shapes)
        head, group = sizes.close_gates(heads, groups, share)
        small = slice_by_gates(decoder, Gates(head.float(), sizes.expand_groups(group).float()))
        assert float(sizes.removed_share(head, group)) == pytest.approx(1 - held(small) / held(decoder))
        assert abs(float(sizes.removed_share(head, group)) - share) < 0.05, "to one head or group"
        stay = [x[mask == 1] for x, mask in ((heads, head), (groups, group))]
        go = [x[mask == 0] for x, mask in ((heads, head), (groups, group))]
        assert share == 0 or torch.cat(go).max() < torch.cat(stay).min()
        assert sizes.widths(head, group) == [(small.spec.heads_at(i), small.spec.ff_at(i)) for i in range(3)]
    spec = replace(decoder.spec, groups=((2, 1), (2, 2), ()), widths=(64, 20, 7))
    assert GateSizes(spec, 16).columns.tolist() == [[16] * 4, [16, 4, 0, 0], [7, 0, 0, 0]]
    assert GateSizes(spec, 16).heads.sum(1).tolist() == [3, 4, 0]


@pytest.mark.parametrize("rank", [0, 3])
def test_what_stays_says_what_the_masked_model_says(rank: int) -> None:
    decoder, rows = toys.decoder(dtype=torch.float64), calibration_texts(TEXT, 128)
    part = WidthGates(
        cut_share=0.4, columns_per_gate=8, steps=3, rank=rank, adapter_learning_rate=0.05, warmup_share=0.0
    )
    gates, others = part.fit_gates(decoder, TEXT)
    small = part.transform(decoder, TEXT)
    torch.testing.assert_close(
        text_logits(small, rows),
        text_logits(apply_gates(replace_layer_matrices(decoder, others), gates), rows),
        atol=1e-5,
        rtol=1e-5,
    )
    assert abs(1 - held(small) / held(decoder) - 0.4) < 0.05
    assert len(others) == (3 if rank else 0)
    if rank:
        change = unpack(others[MatrixPlace(1, "qkv")]) - decoder.layers[1].qkv
        assert torch.linalg.matrix_rank(change) == rank and change[32:48].abs().max() == 0, "keys stay"
        assert change[:32].abs().max() > 0 < change[48:].abs().max()
