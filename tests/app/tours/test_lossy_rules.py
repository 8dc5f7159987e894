"""Guided tours of rules that change the text: what each tour says about its run is true."""

from __future__ import annotations

from math import prod

import pytest
from toured import TOURS, opened, origins, says, text_of, told


def test_what_is_said_of_the_nearly_best() -> None:
    tour, steps = TOURS["relaxed"], told("relaxed")
    rule = [x["rule"] for x in steps]
    at = [steps[x.step]["nodes"][x.node] for x in tour]
    best = [rule[x.step]["best"][x.node - 1] for x in tour[:6]]
    fifth = [rule[x.step]["kth"][x.node - 1] for x in tour[:6]]
    says(tour[0], best[0], best[0] - 0.4)
    says(tour[1], best[1], at[1][4], fifth[1])
    assert at[0][4] == pytest.approx(best[0]) and fifth[0] < best[0] - 0.4 and best[1] - 0.4 < 0
    says(tour[2], best[2], best[2] - 0.4, at[2][4])
    says(tour[3], best[3], fifth[3], at[3][4])
    assert best[3] < 0.4 and at[3][4] < fifth[3] and fifth[2] < best[2] - 0.4 < at[2][4] < best[2]
    says(tour[4], best[4], best[4] - 0.4, at[4][4])
    assert at[4][4] < best[4] / 3 and fifth[4] < best[4] - 0.4
    says(tour[5], best[5], best[5] - 0.4, at[5][4])
    says(tour[6], rule[12]["best"][4])
    likeliest = max(steps[12]["tops"][4][3], key=lambda x: x[2])
    assert likeliest[0] == at[6][2] and steps[12]["verdict"]["extra"][0] is None, "no uniform was drawn"
    pairs = [
        (x[4], most)
        for step in steps
        for x, most in zip(step["nodes"][1:], step["rule"]["best"], strict=False)
        if x[6:7] == ["accept"]
    ]
    assert sum(p < most - 1e-6 for p, most in pairs) == 7 and tour[7].text.startswith("Seven accepted")
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (64, 15)
    says(tour[7], 64 / 15, digits=2)
    with opened("relaxed") as trace:
        assert not trace.header.lossless


def test_what_is_said_of_the_forgiven_rejections() -> None:
    tour, steps = TOURS["fly"], told("fly")
    at = [steps[x.step]["nodes"][x.node] for x in tour]
    unsure = [steps[x.step]["rule"]["H"][x.node - 1] for x in tour[:7]]
    passed = [steps[x.step]["rule"]["run"][x.node - 1] for x in tour[:7]]
    for k in (0, 1, 4):
        says(tour[k], at[k][5], at[k][4] / at[k][3], unsure[k])
    for k in (3, 5, 6):
        says(tour[k], unsure[k])
    says(tour[2], at[2][4])
    assert all(at[k][5] > at[k][4] / at[k][3] for k in (0, 1, 3, 4, 5, 6)), "the exact rule rejects each"
    assert unsure[0] < 0.3 < min(unsure[k] for k in (1, 3, 4, 5, 6))
    assert [passed[k] for k in (1, 3, 4, 5, 6)] == [2, 1, 2, 0, 0]
    assert text_of(steps[4:5]) == " without Ingrid," and at[4][1] == " had" and steps[10]["drafted"] == 4
    loose = [x for step in steps for x in step["nodes"] if x[6:7] == ["accept"] and x[5] > x[4] / x[3]]
    assert len(loose) == 2 and tour[7].text.startswith("2 rejections")
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (40, 12)
    says(tour[7], 40 / 12, digits=2)
    with opened("fly") as trace:
        assert not trace.header.lossless


def test_what_is_said_of_the_mixture() -> None:
    tour, steps = TOURS["ensemble"], told("ensemble")
    at = [steps[x.step]["nodes"][x.node] for x in tour]
    mixed = [(x[4] + x[3]) / 2 if x[3] else 0 for x in at]
    says(tour[0], at[0][4], at[0][3], mixed[0], mixed[0] / at[0][3], at[0][5])
    says(tour[1], at[1][5], mixed[1] / at[1][3])
    assert at[1][4] / at[1][3] < at[1][5] < mixed[1] / at[1][3]
    assert at[1][4] / at[1][3] < at[1][5] < mixed[1] / at[1][3]
    says(tour[2], at[2][4], at[2][3], mixed[2] / at[2][3], at[2][5])
    assert at[3][0] == 0 and origins(steps[3]) == ["resample"]
    wanted = max(steps[3]["tops"][0][3], key=lambda x: x[2] - x[3])
    assert wanted[0] == at[3][2], "p is most above q there"
    says(tour[4], at[4][4], at[4][3])
    assert mixed[4] > at[4][3]
    says(tour[5], at[5][4], at[5][3], mixed[5] / at[5][3], at[5][5])
    assert at[5][1] == " sat" and at[6][3] is None
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (56, 14)
    says(tour[6], 56 / 14, digits=2)
    with opened("ensemble") as trace:
        assert not trace.header.lossless and trace.header.method["acceptance"]["target_weight"] == 0.5


def test_what_is_said_of_the_rates_that_were_set() -> None:
    tour, steps = TOURS["synthetic"], told("synthetic")
    at = [steps[x.step]["nodes"][x.node] for x in tour]
    chances = [x[8] for x in steps[1]["nodes"][1:6]]
    assert chances[0] == pytest.approx(0.8) and prod(chances) == pytest.approx(0.25)
    assert all(
        x[8] == pytest.approx(chance)
        for step in steps
        for x, chance in zip(step["nodes"][1:-1], chances, strict=False)
        if len(x) > 6
    ), "whatever the models say"
    says(tour[0], at[0][5])
    says(tour[1], at[1][4], at[1][3], at[1][5])
    assert at[1][4] > at[1][3] and chances[1] == pytest.approx(0.75) and at[1][5] > chances[1]
    assert origins(steps[1]) == ["accept"] * 5 + ["bonus"]
    lost = steps[2]["nodes"][2]
    says(tour[3], lost[4])
    assert lost[6] == "reject" and lost[1] + steps[2]["nodes"][3][1] == " ever" and at[3][1] == " s"
    assert "One hardly school" in text_of(steps)
    says(tour[4], at[4][4], at[4][3], at[4][5])
    assert at[4][5] > at[4][4] / at[4][3], "the exact rule rejects it"
    says(tour[5], at[5][5], chances[4])
    assert at[5][4] > at[5][3] and steps[5]["made"][-1] == [at[5][2], at[5][1], "resample"]
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (40, 13)
    with opened("synthetic") as trace:
        rates = [float(x) for x in trace.header.method["acceptance"]["acceptance_rates"].split(",")]
        assert not trace.header.lossless
    says(tour[6], 40 / 13, digits=2)
    assert 0 < 1 + sum(rates) - 40 / 13 < 0.5
