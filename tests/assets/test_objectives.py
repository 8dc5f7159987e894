"""The table of objectives: each brings a draft nearer to its target, and the fit equals what acceptance gives."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from cyclic import sharp

from decodescope.engine.training.adversary import Adversary
from decodescope.training import objectives
from decodescope.training.acceptance import overlap
from decodescope.training.losses import divergence, teacher_of
from decodescope.training.net import Net, NetShape
from decodescope.training.objectives import (
    GOALS,
    PROMPT,
    TargetText,
    loss_of,
    measure_fit,
    read_target,
    teach,
)

SMALL = NetShape(layers=1, width=16, heads=2, kv_heads=1, head_width=8, inner=24, vocabulary=13, context=128)


def draft() -> Net:
    """The same small net at every call."""
    torch.manual_seed(1)
    return Net(SMALL)


@cache
def text(rows: int, length: int, seed: int) -> TargetText:
    """Texts that the target writes, each from one random token."""
    g = torch.Generator().manual_seed(seed)
    return read_target(sharp(), sharp().write(torch.randint(13, (rows, 1), generator=g), length - 1, 1.0, g))


@pytest.mark.parametrize("name", [name for name in GOALS if not GOALS[name].own])
def test_every_objective_brings_a_draft_nearer_to_its_target(name: str) -> None:
    student, unseen = draft(), text(8, PROMPT + 12, 2)
    before = measure_fit(sharp(), student, unseen, 1.0)["overlap"]
    teach(GOALS[name], sharp(), student, text(16, 17, 1), 30 * 8 * 16, rates=(0.02, 0.02))
    assert measure_fit(sharp(), student, unseen, 1.0)["overlap"] > before + 0.03


def test_a_discriminator_without_weight_leaves_the_loss_and_its_gradient_as_they_are() -> None:
    part, kept = text(4, 17, 3), []
    for rival in (None, Adversary(13, 0.0), Adversary(13, 0.5)):
        student = draft()
        loss = loss_of(GOALS["fkl"], sharp(), student, part.ids, part.features, rival)
        kept.append([loss.detach(), *torch.autograd.grad(loss, list(student.parameters()))])
    host, watched, driven = kept
    assert all(torch.equal(a, b) for a, b in zip(host, watched, strict=True))
    assert not torch.equal(host[1], driven[1])


def test_overlap_is_what_is_left_of_the_total_variation_and_a_target_drafts_for_itself_without_a_fault() -> (
    None
):
    unseen, student = text(8, PROMPT + 12, 2), draft()
    p, q = (teacher_of(net, unseen.ids)[:, PROMPT - 1 :] for net in (sharp(), student))
    lost = float(divergence("tvd", p, q).mean())
    assert (
        measure_fit(sharp(), student, unseen, 1.0)["overlap"] == pytest.approx(1 - lost, abs=5e-3)
        and 0.1 < lost < 0.95
    )
    assert overlap(sharp(), student, unseen.ids)[1] == pytest.approx(
        1 - float(divergence("tvd", *(teacher_of(net, unseen.ids) for net in (sharp(), student))).mean()),
        abs=1e-5,
    )
    mine = measure_fit(sharp(), sharp(), unseen, 1.0)
    assert mine["overlap"] > 0.99 and mine["tau"] > 5.5 > measure_fit(sharp(), student, unseen, 1.0)["tau"]


def test_a_table_has_means_and_spreads_over_seeds() -> None:
    measured = {"fkl/0": 0.4, "fkl/1": 0.5, "tvd/0": 1.0}
    runs = {key: dict.fromkeys(objectives.FIGURES, x) for key, x in measured.items()}
    rows = objectives.table(runs).split("\n")
    assert rows[2].startswith("| `fkl` | 0.450 ± 0.050 |") and rows[3].startswith("| `tvd` | 1.000 | 1.000 |")
    assert len({row.count("|") for row in rows}) == 1
