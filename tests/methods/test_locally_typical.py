"""Locally typical sampling: the kept set matches its definition, is nested in tau, and drops the mode if it is untypical."""

from __future__ import annotations

import math
from itertools import pairwise

import torch

from decodescope.engine.methods.samplers.locally_typical import LocallyTypical
from decodescope.testing.reference import softmax

TAUS = (0.0, 0.2, 0.5, 0.9, 0.99, 1.0)


def kept(z: torch.Tensor, tau: float) -> set[int]:
    return set(torch.isfinite(LocallyTypical(tau=tau).warp(z, None)).nonzero().flatten().tolist())


def by_definition(z: list[float], tau: float) -> set[int]:
    p = softmax(z)
    entropy = math.fsum(-x * math.log(x) for x in p if x > 0)
    typical, mass, chosen = sorted(range(len(p)), key=lambda x: abs(-math.log(p[x]) - entropy)), 0.0, set()
    for x in typical:
        if mass >= tau and chosen:
            break
        chosen.add(x)
        mass += p[x]
    return chosen


def laws() -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(4)
    return [
        torch.randn(60, generator=g, dtype=torch.float64) * sharp
        for sharp in (0.5, 1.0, 2.0, 4.0)
        for _ in range(5)
    ]


def test_kept_set_is_the_definition_and_nested_in_tau() -> None:
    for z in laws():
        sets = [kept(z, tau) for tau in TAUS]
        assert sets[1:-1] == [by_definition(z.tolist(), tau) for tau in TAUS[1:-1]]
        assert all(a <= b for a, b in pairwise(sets)) and len(sets[0]) == 1 and len(sets[-1]) == 60


def test_the_mode_goes_where_its_surprise_is_far_from_the_entropy_and_stays_where_it_is_near() -> None:
    peak = torch.full((101,), math.log(0.6 / 100), dtype=torch.float64)
    peak[7] = math.log(0.4)
    assert 7 not in kept(peak, 0.5) and 7 in kept(peak, 0.9)
    dropped = sum(int(z.argmax()) not in kept(z, 0.3) for z in laws())
    assert 0 < dropped < 20
    flat = torch.zeros(10, dtype=torch.float64)
    assert kept(flat, 0.35) == {0, 1, 2, 3}, "all are typical: ids order them"


def test_what_was_removed_before_stays_removed_and_takes_no_part() -> None:
    z = laws()[3]
    cut = z.masked_fill(z < z.topk(20).values[-1], -torch.inf)
    left = torch.isfinite(cut).nonzero().flatten()
    for tau in TAUS:
        assert kept(cut, tau) & set(left.tolist()) == {int(left[x]) for x in kept(cut[left], tau)}
        assert not torch.isfinite(LocallyTypical(tau=tau).warp(cut, None))[~torch.isfinite(cut)].any()
