"""Head gates: a gate is 0 as often as derived, a price of 0 keeps all gates, and a high price closes them for good."""

from __future__ import annotations

import pytest
import torch

from decodescope.engine.decoding.bases.weights import CalibrationData
from decodescope.engine.methods.weights.head_gates import HeadGates
from decodescope.engine.methods.weights.shared.gating import hard_concrete, probability_open
from decodescope.engine.methods.weights.shared.texts import calibration_texts, text_loss
from decodescope.engine.model.forward.slicing import apply_gates
from decodescope.engine.model.layers.gates import Gates
from tests import toys

TEXT = CalibrationData(
    lambda: torch.randint(toys.SPEC.vocab, (512,), generator=torch.Generator().manual_seed(3))
)


def test_a_gate_is_0_as_often_as_derived() -> None:
    g = torch.Generator().manual_seed(7)
    assert 1 - float(probability_open(torch.zeros(1, dtype=torch.float64))) == pytest.approx(0.3119, abs=1e-4)
    for log_a in (-2.0, 0.0, 1.5):
        a = torch.full((200_000,), log_a, dtype=torch.float64)
        z = hard_concrete(a, torch.rand(200_000, generator=g, dtype=torch.float64))
        p = 1 - float(probability_open(a[:1]))
        assert abs(float((z == 0).double().mean()) - p) < 4 * (p * (1 - p) / 200_000) ** 0.5
        assert z.min() == 0 and z.max() == 1 and ((z > 0) & (z < 1)).any()


def test_a_price_of_0_keeps_all_and_a_high_one_closes_gates_for_good() -> None:
    decoder, rows = toys.decoder(dtype=torch.float64), calibration_texts(TEXT, 96)
    kept = HeadGates(l0_penalty=0.0, steps=5).gates(decoder, TEXT).head
    assert kept is not None and bool((kept == 1).all())
    log_a = HeadGates(l0_penalty=20.0, steps=60, learning_rate=0.3).gate_logits(decoder, rows)
    z = hard_concrete(log_a)
    assert ((z == 0) | (z == 1)).double().mean() > 0.9 and (z == 0).sum() > 3
    soft, hard = (float(text_loss(apply_gates(decoder, Gates(x)), rows)) for x in (z, (z > 0.5).double()))
    assert abs(hard / soft - 1) < 0.005
