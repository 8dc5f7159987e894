"""Training of the acceptance head: its labels, its weights and its mixture of tokens are as described.

In a language where the draft errs after known tokens, the trained head stops every draft where it goes wrong.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import toys
from cyclic import D, V, cyclic

from decodescope.engine.model.heads.files import write_head
from decodescope.engine.session.load import load
from decodescope.training import specdec as training
from decodescope.training.net import Net

ASSETS = Path(__file__).resolve().parents[2] / "assets"

WRONG = (3, 8, 11)  # after these ids the draft says the successor of another of them


def models() -> tuple[Net, Net]:
    return cyclic(), cyclic(*WRONG)


def text(rows: int, length: int, seed: int) -> torch.Tensor:
    """int64 [rows, length]: what the target writes; each row starts from one random token."""
    beginnings = torch.from_numpy(np.random.default_rng(seed).integers(V, size=(rows, 1)))
    return cyclic().write(beginnings, length - 1, 1.0, torch.Generator().manual_seed(seed))


@cache
def trained():
    torch.manual_seed(1)
    target, draft = models()
    head, own, order = training.new_head(draft), text(200, 24, 1), np.random.default_rng(0)
    batches = iter(own[order.integers(200, size=12)] for _ in range(120))
    training.train(target, draft, head, batches, 120, lr=1e-2)
    return head


def test_label_is_the_chance_that_a_token_drawn_from_the_draft_is_accepted() -> None:
    target, draft = models()
    ids = text(6, 20, 2)
    found = training.examples(target, draft, ids, torch.Generator().manual_seed(5), mixed=0.0)
    p, q = (net(ids)[:, :-1].softmax(-1) for net in (target, draft))
    y = torch.multinomial(q.flatten(0, 1), 1, generator=torch.Generator().manual_seed(5)).view(6, 19)
    for t in range(19):
        token = int(y[0, t])
        assert float(found.labels[0, t]) == pytest.approx(
            min(1.0, float(p[0, t, token] / q[0, t, token])), abs=1e-6
        )
    told = torch.cat([ids[:1, :1], y[:1]], 1)
    state = draft.model.norm(draft.states(told)[-1])[0]
    assert torch.allclose(found.states[0], state[1:], atol=1e-6), (
        "the state after the drawn token, not before it"
    )
    assert found.drawn.all() and 0.05 < float(found.labels.mean()) < 0.95


def test_mean_label_is_the_overlap_of_the_laws() -> None:
    """A drawn token is accepted with probability sum min(p, q)."""
    target, draft = models()
    ids = text(300, 30, 3)
    found = training.examples(target, draft, ids, torch.Generator().manual_seed(0), mixed=0.0)
    shared = torch.minimum(training.next_distribution(target, ids), training.next_distribution(draft, ids))[
        :, :-1
    ].sum(2)
    assert float(found.labels.mean()) == pytest.approx(float(shared.mean()), abs=0.01)


def test_the_targets_own_tokens_are_mixed_in_and_carry_no_loss() -> None:
    target, draft = models()
    ids = text(300, 30, 4)
    found = training.examples(target, draft, ids, torch.Generator().manual_seed(0))
    assert 1 - float(found.drawn.float().mean()) == pytest.approx(0.15, abs=0.01)
    head = training.new_head(draft)
    before = training.loss_of(head, found)
    found.labels[~found.drawn] = 7.0
    assert torch.equal(training.loss_of(head, found), before)
    kept = training.examples(target, draft, ids, torch.Generator().manual_seed(0), mixed=1.0)
    assert torch.allclose(kept.states, training.final_states(draft, ids)[:, 1:]), (
        "all mixed in: the text is the target's"
    )


@pytest.mark.parametrize("label", [0.1, 0.5, 0.9])
def test_refusals_weigh_six_times(label: float) -> None:
    """The best answer to tokens with this label is label / (label + 6 (1 - label)); `undo_weight` inverts it."""
    head = training.new_head(models()[1])
    states, drawn = torch.zeros(1, 1, D), torch.ones(1, 1, dtype=torch.bool)
    found = training.AcceptanceExamples(states, torch.full((1, 1), label), drawn)
    best = label / (label + 6 * (1 - label))

    def loss(a: float) -> float:
        with torch.no_grad():
            head.says.bias.copy_(torch.tensor([1 - a, a]).log())
        return float(training.loss_of(head, found).detach())

    assert loss(best) < min(loss(best * 0.9), loss(best * 1.05))
    assert loss(0.5) == pytest.approx((label + 6 * (1 - label)) * np.log(2), rel=1e-5)
    assert float(training.undo_weight(torch.tensor(best))) == pytest.approx(label, rel=1e-5)


def test_both_models_stay_frozen_and_only_the_head_learns() -> None:
    target, draft = models()
    before = [p.clone() for net in (target, draft) for p in net.parameters()]
    fresh = training.new_head(draft)
    assert (
        not fresh.says.weight.any() and len({tuple(x.weight.flatten().tolist()) for x in fresh.blocks}) == 3
    )
    head = trained()
    after = [p for net in (target, draft) for p in net.parameters()]
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, after, strict=True))
    assert head.says.weight.any() and not any(p.requires_grad for p in head.parameters())


def test_calibration_counts_every_drawn_token_and_beats_a_constant() -> None:
    target, draft = models()
    found = training.measure_calibration(target, draft, trained(), text(64, 24, 9))
    drawn = sum(row[2] for row in found.rows)
    assert drawn == pytest.approx(64 * 23 * 0.85, rel=0.05)
    assert found.loss < 0.5 * found.constant
    for low, high, _, said, plain, true in found.rows:
        assert low <= said <= high + 1e-9 and 0 <= true <= 1 and plain >= said
    weighty = max(found.rows, key=lambda row: row[2])
    assert weighty[4] == pytest.approx(weighty[5], abs=0.1), "undone, the answer is the share accepted"
    assert found.table().count("\n") == len(found.rows) + 2


def test_the_trained_head_stops_each_draft_where_it_went_wrong(tmp_path: Path) -> None:
    """Training and decoding use the same state for a token; one token off, the head would stop elsewhere."""
    target, draft = models()
    target.to_folder(tmp_path / "big")
    draft.to_folder(tmp_path / "small")
    write_head(trained(), tmp_path / "small" / "heads" / "specdec", {"more": 1})
    assert json.loads((tmp_path / "small" / "heads" / "specdec" / "config.json").read_text())["shape"] == {
        "d": D,
        "blocks": 3,
    }
    big, small = (load(tmp_path / x, "float32", "cpu") for x in ("big", "small"))
    assert small.spec.heads == ("specdec",)
    method = toys.method(
        drafter="draft_model", schedule=("specdec_pp", {"threshold": 0.5, "max_draft_tokens": 20})
    )
    session = toys.decode(method, [3, 1, 0], 60, pair=(big, small), stop_tokens=())
    assert session.end.tokens == toys.greedy_text(big.decoder, [3, 1, 0], 60)
    stopped = 0
    for step in session.sink.steps[:-2]:
        a = step.draft.notes["schedule"]["a"]
        first = next((i for i, x in enumerate(a) if x < 0.5), None)
        if step.draft.notes["schedule"]["stop"] == "rejection likely":
            stopped += 1
            assert first == len(a) - 1 == step.accepted, (
                "refused where the head said so, and not drafted far beyond"
            )
            assert step.drafted == len(a) + 1
    assert stopped > 5, "the test needs drafts that went wrong"


def test_the_threshold_is_the_least_that_writes_nearly_as_many_tokens_a_pass_as_a_fixed_length(
    tmp_path: Path,
) -> None:
    """An untrained head says one half for each token, so h alone sets the length: 2 below 0.5, then 3, and 4 from 0.75 on."""
    target, draft = models()
    target.to_folder(tmp_path / "big")
    draft.to_folder(tmp_path / "small")
    write_head(training.new_head(draft), tmp_path / "small" / "heads" / "specdec")
    big, small = (load(tmp_path / x, "float32", "cpu") for x in ("big", "small"))
    found = training.choose_threshold(big, small, [[3, 1, 0], [5, 2]], 40)
    assert found.fixed[0] == 4 and found.threshold == 0.75 and found.tried[-1] == (0.75, *found.fixed[1:])
    assert [row[0] for row in found.tried] == [0.1, 0.3, 0.5, 0.6, 0.7, 0.75], (
        "from the least, and no further than needed"
    )
    assert found.tried[0][1] < found.tried[3][1] < training.NEARLY * found.fixed[1]
