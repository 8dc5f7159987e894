"""Training of PPD's prompt tokens: it sees what a check sees, and fits each guess to its token's distribution.

The model does not change.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import toys
from cyclic import sharp as net

from decodescope.engine.model.heads.files import write_head
from decodescope.engine.session.load import load
from decodescope.training import ppd as training
from decodescope.training.net import Net

ASSETS = Path(__file__).resolve().parents[2] / "assets"


def text(rows: int, length: int, seed: int) -> torch.Tensor:
    """int64 [rows, length]: what the net writes after one token."""
    g = torch.Generator().manual_seed(seed)
    return net().write(torch.randint(13, (rows, 1), generator=g), length - 1, 1.0, g)


@pytest.mark.parametrize("ensemble", [1, 2])
def test_training_sees_what_the_check_sees(ensemble: int, tmp_path: Path) -> None:
    """Compare the guesses of a training pass with a run's slots, place by place, for the same model and prompt tokens."""
    head = training.new_head(net(), ensemble, seed=1)
    with torch.no_grad():
        head.embeds.copy_(head.embeds.to(torch.bfloat16))  # as the file stores them
    net().to_folder(tmp_path)
    write_head(head, tmp_path / "heads" / "ppd")
    model = load(tmp_path, "float32", "cpu")
    told = Net.from_folder(tmp_path)  # with the file's rounding
    method = toys.method(drafter=("ppd", {"rows": "24"}))
    session, compared = (
        toys.Session(model, method, text(1, 9, 0)[0].tolist(), max_new_tokens=30, stop_tokens=()),
        0,
    )
    session.start()
    observe, seen = session.drafter.observe, []
    session.drafter.observe = lambda outcome: (seen.append(outcome), observe(outcome))[1]  # type: ignore[method-assign]
    for _ in range(6):
        now = list(session.tokens)
        session.step()
        slots, path = seen[-1].draft.slots, [seen[-1].draft.tokens[x] for x in seen[-1].verdict.path]
        last = seen[-1].verdict.path[-1] if path else -1
        mine = seen[-1].slots[[i for i, node in enumerate(slots.at) if node == last]]
        if not len(mine):
            continue
        ids = torch.tensor([[*now, *path]])
        made = training.slot_logits(
            told, head, training.read_context(told, ids)[0], torch.tensor([ids.shape[1] - 1])
        )[0, 0]
        mean = mine.view(-1, ensemble, 13).mean(1)
        assert torch.allclose(mean, made[: len(mean)], atol=1e-3)
        compared += len(mean)
    assert compared > 6


def test_a_guess_is_held_against_the_law_of_its_own_token() -> None:
    """Guess k at place t is for token t + 2 + k; the model gives that token's distribution after reading up to t + 1 + k."""
    ids, places = text(2, 12, 5), torch.tensor([0, 3, 7])
    law = training.target_logits(net(), training.read_context(net(), ids)[1], places, 3)
    for p, t in enumerate(places.tolist()):
        for k in range(3):
            assert torch.allclose(law[:, p, k], net()(ids[:, : t + 2 + k])[:, -1], atol=1e-4)


def test_places_do_not_see_each_other() -> None:
    head, ids = training.new_head(net(), 2), text(2, 12, 6)
    past = training.read_context(net(), ids)[0]
    together = training.slot_logits(net(), head, past, torch.tensor([1, 4, 8]))
    for p, t in enumerate((1, 4, 8)):
        assert torch.allclose(
            together[:, p], training.slot_logits(net(), head, past, torch.tensor([t]))[:, 0], atol=1e-4
        )
        cut = training.read_context(net(), ids[:, : t + 1])[0]
        assert torch.allclose(
            together[:, p], training.slot_logits(net(), head, cut, torch.tensor([t]))[:, 0], atol=1e-4
        )


def test_training_gets_better_and_leaves_the_model_alone() -> None:
    before = [p.clone() for p in net().parameters()]
    head, rows = training.new_head(net(), 1), text(64, 24, 1)
    places = torch.arange(4, 18, 3)
    first = float(training.loss_of(net(), head, rows, places).detach())
    training.train(net(), head, training.shuffle_batches(rows, 8, 0, "cpu"), 60, places=8)
    assert float(training.loss_of(net(), head, rows, places)) < 0.9 * first
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, net().parameters(), strict=True))
    rates = training.measure(net(), head, text(16, 24, 9))
    assert len(rates) == 3 and all(len(row) == 10 and sum(row) <= 1 + 1e-9 for row in rates)
