"""Latency fit: structures without effect go first and change nothing, the rest compensates, and the time target is met."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.pruning import replace_layer_matrices
from decodescope.engine.decoding.bases.weights import CalibrationData
from decodescope.engine.methods.weights.latency_fit import LatencyFit, cut_structures
from decodescope.engine.methods.weights.shared.block_times import (
    LARGEST,
    BlockTimes,
    choose_within_budget,
    load_times,
    measure_times,
)
from decodescope.engine.methods.weights.shared.surgeon import input_grams, pruning_levels, removal_errors
from decodescope.engine.methods.weights.shared.texts import calibration_texts, text_logits
from decodescope.engine.model.forward.slicing import apply_gates
from tests import toys

TEXT = CalibrationData(
    lambda: torch.randint(toys.SPEC.vocab, (512,), generator=torch.Generator().manual_seed(3))
)
TABLE = load_times(toys.TIMES, toys.SPEC, "times")


def seen(inner: int = 12, rows: int = 200) -> tuple[Tensor, Tensor]:
    """Weights [5, inner], and input rows whose columns are correlated."""
    g = torch.Generator().manual_seed(2)
    x = torch.randn(rows, inner, generator=g, dtype=torch.float64) @ torch.randn(
        inner, inner, generator=g, dtype=torch.float64
    )
    return torch.randn(5, inner, generator=g, dtype=torch.float64), x


def test_a_column_of_zeros_costs_nothing_and_goes_first() -> None:
    w, x = seen()
    w[:, [3, 8]] = 0
    whole, two = pruning_levels(w, x.t() @ x, 1, [0, 2])
    assert set(two.gone) == {3, 8} and two.error == 0 == whole.error
    assert torch.equal(two.weight(12), w), "and changes nothing"
    one = pruning_levels(w.index_fill(1, torch.tensor([4, 5]), 0), x.t() @ x, 2, [1])[0]
    assert one.gone == (2,) and one.error == 0, "a structure of two"


@pytest.mark.parametrize("width", [1, 3])
def test_each_step_is_the_best_that_least_squares_could_do(width: int) -> None:
    """By brute force: for every structure that may be removed, the rest is refitted to the products of the whole matrix."""
    w, x = seen()
    ridge = 0.01 * (x.t() @ x).diagonal().mean() * torch.eye(12, dtype=torch.float64)
    gram, there = x.t() @ x + ridge, list(range(12))
    came = pruning_levels(w, x.t() @ x, width, range(12 // width))
    for level in came[1:]:
        options = {}
        for s in sorted({i // width for i in there}):
            left = [i for i in there if i // width != s]
            fitted = torch.linalg.solve(gram[left][:, left], (w @ gram)[:, left].t()).t()
            off = torch.zeros_like(w)
            off[:, left] = fitted
            options[s] = (float(((off - w) @ gram * (off - w)).sum()), left, off)
        best = min(options, key=lambda s: options[s][0])
        assert level.gone[-1] == best
        _, there, off = options[best]
        torch.testing.assert_close(level.weight(12), off, atol=1e-9, rtol=1e-9)
    assert [x.error for x in came] == sorted(x.error for x in came)


def test_where_columns_know_nothing_of_each_other_it_is_size_times_activation() -> None:
    w, _ = seen()
    power = torch.arange(1.0, 13.0, dtype=torch.float64)
    torch.testing.assert_close(removal_errors(w, torch.diag(1 / power), 1), w.square().sum(0) * power)
    torch.testing.assert_close(
        removal_errors(w, torch.diag(1 / power), 2), (w.square() * power).sum(0).view(6, 2).sum(1)
    )


def test_the_programme_finds_what_trying_all_finds() -> None:
    g = torch.Generator().manual_seed(5)
    for budget in (30.0, 60.0, 100.0):
        options = [[(float(t), float(e)) for t, e in torch.rand(4, 2, generator=g) * 50] for _ in range(4)]
        every = [(sum(t for t, _ in x), sum(e for _, e in x), i) for i, x in enumerate(product(*options))]
        fitting = [x for x in every if x[0] <= budget]
        plan = choose_within_budget(options, budget)
        if not fitting:
            assert plan == []
            continue
        took, error = (sum(block[i][k] for block, i in zip(options, plan, strict=True)) for k in range(2))
        assert took <= budget and error <= min(e for t, e, _ in fitting if t <= budget * 0.99) + 1e-9
        assert error >= min(e for _, e, _ in fitting) - 1e-9


@pytest.mark.parametrize("faster", [1.2, 2.0, 4.0])
def test_the_predicted_time_is_met_and_what_is_cut_says_what_the_masked_model_says(faster: float) -> None:
    decoder, rows = toys.decoder(dtype=torch.float64), calibration_texts(TEXT, 128)
    part = LatencyFit(
        speedup=faster, search_trials=3, calibration_tokens=256, evaluation_tokens=64, timing_table=toys.TIMES
    )
    fit = part.fit(decoder, TEXT, TABLE)
    assert 0.95 * fit.before / faster <= fit.us <= fit.before / faster
    gates, others = cut_structures(decoder, fit.levels)
    assert gates.head is not None and gates.ffn is not None
    spec = decoder.spec
    took = sum(TABLE.attn[int(h.sum())] for h in gates.head) + sum(
        TABLE.time_of(1, int(f.sum())) for f in gates.ffn
    )
    assert took + TABLE.rest == pytest.approx(fit.us)
    masked = text_logits(apply_gates(replace_layer_matrices(decoder, others), gates), rows)
    small = part.transform(decoder, TEXT)
    torch.testing.assert_close(text_logits(small, rows), masked, atol=1e-5, rtol=1e-5)
    assert [small.spec.ff_at(i) for i in range(spec.n_layers)] == gates.ffn.sum(1).tolist()


def test_what_stays_makes_up_for_what_goes() -> None:
    decoder, rows = toys.decoder(dtype=torch.float64), calibration_texts(TEXT, 256)
    heads, columns = input_grams(decoder, rows)
    assert [x.shape[0] for x in heads] == [32] * 3 and [x.shape[0] for x in columns] == [64] * 3
    down, gram = decoder.layers[1].down, columns[1]
    level = pruning_levels(down, gram, 1, [24])[0]
    masked = down.index_fill(1, torch.tensor(level.gone), 0)
    off = [float(((w - down) @ gram * (w - down)).sum()) for w in (level.weight(64), masked)]
    assert off[0] < 0.8 * off[1]


def test_a_table_is_measured_kept_and_read(tmp_path: Path) -> None:
    table = measure_times(toys.decoder(), 1)
    assert table.fits(toys.SPEC) and table.rest > 0 and table.time_of(0, 4) > 0 and table.time_of(1, 64) > 0
    (path := tmp_path / "times.json").write_text(table.record())
    assert load_times(str(path), toys.SPEC, "latency_fit.timing_table") == table
    assert TABLE.time_of(1, 0) == 0 and TABLE.time_of(1, 63) == pytest.approx(83.0, abs=3)
    for text, why in (
        ("{}", "no table of block times"),
        ("[" * 100_000, "no table of block times"),
        (" " * (LARGEST + 1), "it must have 1 to 1048576"),
        (BlockTimes(1.0, (0.0, 1.0), ((0, 0.0),)).record(), "of another shape"),
    ):
        path.write_text(text)
        with pytest.raises(ParamError, match=f"latency_fit.timing_table = .*{why}"):
            LatencyFit(timing_table=str(path)).transform(toys.decoder(), TEXT)
    if hasattr(os, "mkfifo"):
        os.mkfifo(path.with_name("pipe"))
        with pytest.raises(ParamError, match="no table of block times"):  # and nobody waits for a writer
            LatencyFit(timing_table=str(path.with_name("pipe"))).transform(toys.decoder(), TEXT)


def test_more_than_there_is_to_save_is_refused() -> None:
    with pytest.raises(
        ParamError, match=r"latency_fit.speedup = 20: a pass of toy without any block is 12 times as fast"
    ):
        LatencyFit(speedup=20.0).fit(toys.decoder(), TEXT, TABLE)
