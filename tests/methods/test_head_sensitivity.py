"""Head sensitivity: scores are slopes of the loss, masks are nested, and the cut heads are the masked ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from decodescope.engine.decoding.bases.weights import CalibrationData
from decodescope.engine.methods.weights.head_sensitivity import (
    HeadSensitivity,
    closing_gates,
    normalise_by_layer,
    sensitivity,
)
from decodescope.engine.methods.weights.shared.texts import calibration_texts, text_logits, text_loss
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import apply_gates
from decodescope.engine.model.layers.gates import Gates
from tests import toys

SPEC = replace(toys.SPEC, n_heads=6, heads=())
TEXT = CalibrationData(lambda: torch.randint(SPEC.vocab, (1024,), generator=torch.Generator().manual_seed(3)))


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    made = toys.decoder(SPEC, dtype=torch.float64)
    made.layers[1].out[:, 2 * SPEC.head_dim : 3 * SPEC.head_dim] = 0  # head 2 of layer 1 has no effect
    return made


def test_a_score_is_the_slope_of_the_loss(decoder: Decoder) -> None:
    """Within 1 % of the finite difference on one text; a head without effect has the score 0."""
    rows, ones, step = calibration_texts(TEXT, 48), torch.ones(3, 6, dtype=torch.float64), 1e-3
    scores = sensitivity(decoder, ones, rows)
    assert len(rows) == 1 and scores[1, 2] == 0 and (scores > 1e-4).sum() > 12, (
        "the test needs heads that matter"
    )
    for i in range(3):
        for h in range(6):
            ends = []
            for moved in (step, -step):
                gate = ones.clone()
                gate[i, h] += moved
                ends.append(float(text_loss(apply_gates(decoder, Gates(gate)), rows)))
            slope = abs(ends[0] - ends[1]) / (2 * step)
            assert abs(scores[i, h] - slope) <= 0.01 * slope + 1e-9


def test_signs_of_texts_do_not_cancel(decoder: Decoder) -> None:
    rows, ones = calibration_texts(TEXT, 1024), torch.ones(3, 6, dtype=torch.float64)
    each = [sensitivity(decoder, ones, row[None]) for row in rows]
    assert len(rows) == 4
    torch.testing.assert_close(sensitivity(decoder, ones, rows), torch.stack(each).mean(0))


def test_masks_are_nested_and_none_is_the_model(decoder: Decoder) -> None:
    gone: set[tuple[int, int]] = set()
    for cut in (0.0, 0.2, 0.4, 0.7):
        mask = HeadSensitivity(cut_share=cut, calibration_tokens=256).gates(decoder, TEXT).head
        assert mask is not None
        now = {(int(i), int(h)) for i, h in (mask == 0).nonzero()}
        assert gone <= now and len(now) == round(cut * 18)
        gone = now
    assert (1, 2) in gone, "what nobody reads goes first"
    assert HeadSensitivity(cut_share=0.0, calibration_tokens=256).transform(decoder, TEXT).spec == SPEC


def test_the_cheapest_heads_of_their_layers_go_and_logits_are_those_of_the_mask(decoder: Decoder) -> None:
    rows = calibration_texts(TEXT, 256)
    scores = normalise_by_layer(sensitivity(decoder, torch.ones(3, 6, dtype=torch.float64), rows))
    part = HeadSensitivity(cut_share=0.5, calibration_tokens=256)
    order = part.order(decoder, rows)
    assert [float(scores[x]) for x in order] == sorted(scores.flatten().tolist())[:9]
    cut = part.transform(decoder, TEXT)
    masked = text_logits(apply_gates(decoder, Gates(closing_gates(order, 9, decoder))), rows)
    torch.testing.assert_close(text_logits(cut, rows), masked, atol=1e-9, rtol=1e-9)
    assert sum(map(cut.spec.heads_at, range(3))) == 9
    in_rounds = HeadSensitivity(cut_share=0.5, calibration_tokens=256, rounds=9).order(decoder, rows)
    assert len(set(in_rounds)) == 9 and in_rounds[0] == order[0]
