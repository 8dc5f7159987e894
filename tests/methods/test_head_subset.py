"""Head subset: gates sum to K at every temperature, become the top K, and learn which heads the model needs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.weights import CalibrationData
from decodescope.engine.methods.weights.head_subset import HeadSubset
from decodescope.engine.methods.weights.shared.gating import gumbel_noise, soft_top
from decodescope.engine.methods.weights.shared.texts import calibration_texts, text_logits
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import apply_gates
from decodescope.engine.model.layers.gates import Gates
from tests import toys

TEXT = CalibrationData(
    lambda: torch.randint(toys.SPEC.vocab, (512,), generator=torch.Generator().manual_seed(3))
)


def test_gates_sum_to_k_at_every_temperature() -> None:
    g = torch.Generator().manual_seed(1)
    above = 0
    for k in (1, 5, 40):
        for heat in (1000.0, 30.0, 1.0, 0.1, 1e-3, 1e-8):
            r = torch.randn(64, generator=g, dtype=torch.float64)
            r = r + gumbel_noise(r, g)
            mask = soft_top(r, k, heat)
            assert abs(float(mask.sum()) - k) < 1e-6
            above += int((mask > 1 + 1e-9).any())
            if heat <= 1e-8:
                assert torch.equal(mask.round(), torch.zeros_like(r).index_fill(0, r.topk(k).indices, 1))
                assert (mask - mask.round()).abs().max() < 1e-6
    assert above, "single gates exceed 1 on the way"


def written_by(decoder: Decoder) -> Tensor:
    """A text drawn from this model, so the model needs all its heads to find it likely."""
    g, text = torch.Generator().manual_seed(0), torch.tensor([[3]])
    with torch.inference_mode():
        for _ in range(95):
            text = torch.cat(
                [text, torch.multinomial(text_logits(decoder, text)[:, -1].softmax(-1), 1, generator=g)], 1
            )
    return text.clone()


def test_temperature_falls_and_training_keeps_what_the_model_needs() -> None:
    """Only some heads of this model have an effect, and exactly these are kept."""
    decoder, D = toys.decoder(dtype=torch.float64), toys.SPEC.head_dim
    needed = {(0, 1), (1, 3), (2, 0)}
    for i, layer in enumerate(decoder.layers):
        for h in range(4):
            if (i, h) not in needed:
                layer.out[:, h * D : (h + 1) * D] = 0
    part = HeadSubset(kept_heads=3, steps=40, learning_rate=0.5)
    heats = [part.temperature_at(step) for step in range(40)]
    assert heats == sorted(heats, reverse=True) and heats[0] == 1.0 and heats[-1] == pytest.approx(1e-8)
    gates = part.subset_gates(part.head_weights(decoder, written_by(decoder)), decoder)
    assert {(int(i), int(h)) for i, h in gates.nonzero()} == needed


def test_the_chosen_heads_stay_and_the_others_are_cut_out() -> None:
    decoder, rows, part = (
        toys.decoder(dtype=torch.float64),
        calibration_texts(TEXT, 128),
        HeadSubset(kept_heads=3, steps=1),
    )
    cut, again = part.transform(decoder, TEXT), part.gates(decoder, TEXT).head
    assert sum(map(cut.spec.heads_at, range(3))) == 3
    torch.testing.assert_close(
        text_logits(cut, rows), text_logits(apply_gates(decoder, Gates(again)), rows), atol=1e-9, rtol=1e-9
    )


def test_more_heads_than_there_are_are_refused() -> None:
    with pytest.raises(ParamError, match=r"head_subset.kept_heads = 13: toy has 12 heads"):
        HeadSubset(kept_heads=13).gates(toys.decoder(), TEXT)
