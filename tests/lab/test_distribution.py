"""The calculations behind the distribution sliders: their ranges for a record contain the engine's true values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from sizes import thinned

from decodescope.engine.decoding.bases.sampler import softmax
from decodescope.engine.decoding.values.draft import Draft, Verdict
from decodescope.engine.decoding.values.tops import tops_record
from decodescope.engine.session.method import Method
from decodescope.lab.views.bundle import WEB

from .drawn import Drawn, answer

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]
V = 400
HEATS = (0.4, 0.8, 1.0, 1.5)
SETTINGS: list[dict[str, float]] = [
    *({"temperature": t} for t in (0.2, 0.5, 0.8, 1.0, 1.3, 2.0)),
    *({"temperature": t, "k": k} for t in (0.5, 1.4) for k in (1, 3, 5)),
    *({"temperature": t, "p": p} for t in (0.6, 1.0, 1.6) for p in (0.3, 0.7, 0.95)),
    *({"temperature": t, "share": s} for t in (0.7, 1.5) for s in (0.02, 0.3)),
    {"temperature": 0.9, "k": 4, "p": 0.8, "share": 0.1},
]
STAGES = {
    "temperature": ("temperature", "temperature"),
    "k": ("top_k", "k"),
    "p": ("top_p", "p"),
    "share": ("min_p", "p"),
}


@pytest.fixture
def sums(drawn: Drawn) -> Drawn:
    """A page with the module that does the calculations."""
    text = (WEB / "run_view" / "distribution_sums.js").read_text(encoding="utf-8")
    drawn.page.route("http://scope.test/sums.js", answer("text/javascript", text))
    drawn.page.evaluate("async () => { window.sums = await import('/sums.js'); }")
    return drawn


def logits(seed: int) -> torch.Tensor:
    """Logits that resemble a model's: a few large ones over a broad floor."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(V, generator=generator, dtype=torch.float64) * (1 + seed % 3)
    z[: 3 + seed] += 4
    return z


def drawn_from(z: torch.Tensor, stages: Sequence[tuple[str, str, float]]) -> torch.Tensor:
    """The distribution after these samplers, in their order."""
    names, settings = [name for name, *_ in stages], {name: {knob: value} for name, knob, value in stages}
    sampler = Method.from_names({"sampler": names}, settings).sampler
    return softmax(sampler.warp(z, sampler.start([0], V)))


def chain(setting: dict[str, float]) -> list[tuple[str, str, float]]:
    return [(*STAGES[word], int(x) if word == "k" else x) for word, x in setting.items()]


def record(p: torch.Tensor) -> list[Any]:
    """The record of a place without a draft, in its wire form."""
    held = tops_record(Draft(), Verdict([], 0, "target", places=[(-1, p.float())]), p.log()[None].float())
    columns = zip(held.ids[0].tolist(), held.p[0].tolist(), strict=True)
    return [
        0,
        float(held.entropy[0]),
        held.rest[0].tolist(),
        [[token, f"t{token}", x, 0.0] for token, x in columns],
    ]


def asked(
    sums: Drawn, held: list[Any], heat: float, cuts: bool = False
) -> tuple[list[int], list[dict[str, Any]]]:
    """The tokens of a record, and the computed ranges under each of the SETTINGS."""
    code = """(held, of, settings, heat) => { const base = window.sums.recorded(held, of);
        return [base.rows.map((row) => row.token), settings.map((x) => window.sums.reshaped(base, x, heat))]; }"""
    tokens, said = sums.run(code, held, {"vocab": V, "cuts": cuts}, SETTINGS, heat)
    return tokens, said


@pytest.mark.parametrize("heat", thinned(2, HEATS))
def test_the_ranges_hold_the_truth_and_are_narrow_where_the_record_settles_it(
    sums: Drawn, heat: float
) -> None:
    exact = wide = 0
    for seed in range(6):
        z = logits(seed)
        tokens, said = asked(sums, record(softmax(z / heat)), heat)
        for setting, one in zip(SETTINGS, said, strict=True):
            true = drawn_from(z, chain(setting))
            ranges = [*one["rows"], one["rest"]]
            values = [*true[tokens].tolist(), float(1 - true[tokens].sum())]
            for (low, high), value in zip(ranges, values, strict=True):
                assert low - 2e-6 <= value <= high + 2e-6, (seed, setting, low, value, high)
                exact += high - low < 1e-5
                wide += high - low > 0.5
    assert exact > 200 and wide < 400, (exact, wide)


def test_the_recorded_temperature_gives_the_recorded_numbers(sums: Drawn) -> None:
    held = record(softmax(logits(1) / 0.8))
    _, said = asked(sums, held, 0.8)
    same = said[[x.get("temperature") == 0.8 for x in SETTINGS].index(True)]
    assert np.allclose(same["rows"], [[p, p] for *_, p, _ in held[3]], atol=1e-7) and math.isclose(
        *same["rest"], abs_tol=1e-7
    )


@pytest.mark.nightly
def test_what_the_run_cut_away_stays_away(sums: Drawn) -> None:
    """For three kept tokens everything is known, at every temperature."""
    z = logits(2)
    kept = drawn_from(z, [("top_k", "k", 3), ("temperature", "temperature", 0.5)])
    tokens, said = asked(sums, record(kept), 0.5, cuts=True)
    for setting, one in zip(SETTINGS, said, strict=True):
        true = drawn_from(kept.log() * 0.5, chain(setting))
        assert np.allclose(one["rows"], [[x, x] for x in true[tokens].tolist()], atol=1e-5), setting
        assert one["rest"] == [0, 0]


def test_at_temperature_zero_the_likeliest_has_all(sums: Drawn) -> None:
    held = record(softmax(logits(3)))
    code = "(held, of) => window.sums.reshaped(window.sums.recorded(held, of), { temperature: 0 }, 1)"
    one = sums.run(code, held, {"vocab": V, "cuts": False})
    assert one["rows"] == [[1, 1]] + [[0, 0]] * 4 and one["rest"] == [0, 0]


def test_a_drawn_token_that_is_not_among_the_likeliest_is_taken_out_of_the_others(sums: Drawn) -> None:
    z = logits(4)
    p = softmax(z)
    token = int(p.argsort(descending=True)[9])
    drawn = {"token": token, "text": "x", "p": float(p[token])}
    code = """(held, of, settings) => { const base = window.sums.recorded(held, of);
        return settings.map((x) => window.sums.reshaped(base, x, 1)); }"""
    said = sums.run(code, record(p), {"vocab": V, "cuts": False, "drawn": drawn}, SETTINGS)
    for setting, one in zip(SETTINGS, said, strict=True):
        low, high = one["rows"][-1]
        assert low - 2e-6 <= float(drawn_from(z, chain(setting))[token]) <= high + 2e-6, setting
