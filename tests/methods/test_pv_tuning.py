"""PV-Tuning: few codes per step, always on the grid, never worse than rounding; codes and scales can be tuned separately."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.weights import CalibrationData, MatrixPlace
from decodescope.engine.methods.weights.codes import Codes
from decodescope.engine.methods.weights.pv_tuning import PVTuning
from decodescope.engine.methods.weights.shared.grid import Grid
from decodescope.engine.methods.weights.shared.texts import calibration_texts, kl_divergence, text_logits
from decodescope.engine.model.layers.matrix import bits_per_number, unpack
from tests import toys

TEXT = CalibrationData(
    lambda: torch.randint(toys.SPEC.vocab, (768,), generator=torch.Generator().manual_seed(3))
)


def test_it_ends_nearer_to_the_whole_model_than_rounding_on_texts_that_no_step_read() -> None:
    decoder = toys.decoder()
    part = PVTuning(steps=12, learning_rate=0.02, code_learning_rate=0.1)
    other = torch.randint(toys.SPEC.vocab, (8, 64), generator=torch.Generator().manual_seed(9))
    dense, plain = text_logits(decoder, other), PVTuning(steps=0).transform(decoder, TEXT)
    rounded = Codes(bits=2).transform(decoder, TEXT)
    assert all(
        torch.equal(unpack(x.down), unpack(y.down)) for x, y in zip(plain.layers, rounded.layers, strict=True)
    )
    made = part.transform(decoder, TEXT)
    before, after = (kl_divergence(dense, text_logits(x, other)) for x in (plain, made))
    assert after < 0.8 * before
    assert bits_per_number(made.layers[0].down) == bits_per_number(plain.layers[0].down)


@pytest.mark.parametrize(("rate", "share"), [(0.02, 0.01), (0.02, 0.0), (0.0, 0.01)])
def test_at_most_a_hundredth_of_the_codes_moves_in_a_step_and_the_rest_is_a_grid(
    rate: float, share: float
) -> None:
    decoder = toys.decoder(dtype=torch.float64)
    part = PVTuning(steps=1, learning_rate=rate, max_changed_share=share, code_learning_rate=1.0)
    grids, full = part.grids(decoder), 0
    for _ in range(3):
        before = deepcopy(grids)
        _, (step,), _ = part.tune(decoder, grids, calibration_texts(TEXT, 512))
        for place, x in grids.items():
            moved = int((x.q != before[place].q).sum())
            assert moved == step.changed[place] <= share * x.q.numel()
            full += moved == int(share * x.q.numel())
            assert bool(((x.q == x.q.round()) & (x.q >= 0) & (x.q <= 3)).all()) and bool((x.scale > 0).all())
            assert (
                (not rate)
                == torch.equal(x.scale, before[place].scale)
                == torch.equal(x.zero, before[place].zero)
            )
            read, levels = (
                x.round_scales(torch.float32).weight().view_as(x.q),
                torch.arange(4.0, dtype=torch.float64),
            )
            assert (
                (read[..., None] - x.zero[..., None] - levels * x.scale[..., None]).abs().amin(-1) < 1e-6
            ).all()
    assert full > 20, "the test needs steps that would move more"


def test_the_weights_that_wish_themselves_furthest_away_move_first_and_the_others_wait() -> None:
    grid = Grid.from_weight(torch.arange(16.0).view(1, 16), 16, 2, torch.float64)  # levels 0, 5, 10, 15
    slope = torch.zeros(1, 16, dtype=torch.float64)
    slope[0, 5], slope[0, 10], slope[0, 15] = 1.0, -1.0, -1.0
    assert grid.step(slope, 0.3, 1.0) == 0, "a wish of less than half a step"
    assert grid.step(slope, 0.4, 1 / 16) == 1, "two are no longer nearest, one may move"
    assert grid.step(torch.zeros_like(slope), 0.0, 1 / 16) == 1, "the other has waited"
    came = Grid.from_weight(torch.arange(16.0).view(1, 16), 16, 2, torch.float64).q
    came[0, 0, 5], came[0, 0, 10] = 0, 3
    assert torch.equal(grid.q, came), "what is at the end of the grid stays there"


def test_the_best_state_on_the_way_is_kept_even_if_it_is_the_first() -> None:
    decoder, rows = toys.decoder(), calibration_texts(TEXT, 768)
    part = PVTuning(steps=3, learning_rate=0.0, code_learning_rate=3.0, max_changed_share=1.0)
    best, history, (first,) = part.tune(decoder, part.grids(decoder), rows)
    assert all(x.judged is not None and x.judged > first + 1 for x in history), (
        "the test needs steps that do harm"
    )
    assert all(torch.equal(best[place].weight(), x.weight()) for place, x in part.grids(decoder).items())


@pytest.mark.parametrize("k", [2, 3, 4])
def test_what_is_stored_is_what_was_judged(k: int) -> None:
    part = PVTuning(bits=k, steps=2, code_learning_rate=1.0)
    decoder = toys.decoder(dtype=torch.bfloat16)
    best, *_ = part.tune(decoder, part.grids(decoder), calibration_texts(TEXT, 512))
    made = part.transform(decoder, CalibrationData(lambda: TEXT.tokens[:512]))
    read = unpack(made.layers[1].gate_up).float()
    assert torch.allclose(
        read, best[MatrixPlace(1, "gate_up")].weight(), atol=0.004 * float(read.abs().max())
    )


def test_groups_that_do_not_divide_rows_are_refused() -> None:
    with pytest.raises(
        ParamError, match=r"pv_tuning.group = 128: must divide the 32 inputs of qkv of layer 0"
    ):
        PVTuning(group=128).transform(toys.decoder(), TEXT)
