"""Training of slot inputs, in a language where each token has exactly one successor.

Trained slots draft without an error; slots trained one token off never draft a right token. Training sees what the check sees,
continues where it was interrupted, and leaves the model unchanged.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import toys
from cyclic import NEXT, V, looking
from cyclic import sharp as net

from decodescope.engine.model.heads.files import SLOTTED, write_head
from decodescope.engine.session.load import load
from decodescope.training import slot_tokens as training
from decodescope.training.net import Net

ASSETS = Path(__file__).resolve().parents[2] / "assets"

SHAPES = {"look_ahead_tokens": dict(heads=3), "bita": dict(heads=3, tokens=4)}
DRAFTS = {
    "look_ahead_tokens": dict(placement="everywhere"),
    "bita": dict(nodes=3),
}  # slots are at every node, the tree is a chain


def text(made: Net, rows: int, length: int, seed: int) -> torch.Tensor:
    """int64 [rows, length]: what a net writes after one token."""
    g = torch.Generator().manual_seed(seed)
    return made.write(torch.randint(V, (rows, 1), generator=g), length - 1, 1.0, g)


def trained(kind: str, **more):
    """Slots after 200 training steps on the cycle."""
    head = training.new_head(kind, looking(), seed=1, **SHAPES[kind])
    training.train(looking(), head, text(looking(), 200, 24, 1), 200, lr=5e-2, places=16, **more)
    return head


def decoded(head, folder: Path) -> list[int]:
    """Run the folder's model with these slots; return the number of accepted tokens per step."""
    looking().to_folder(folder)
    head.rates = ((1.0, 0.0),) * 3  # turns the tree of three nodes into a chain
    write_head(head, folder / "heads" / head.kind)
    model = load(folder, "float32", "cpu")
    session = toys.decode(
        toys.method(drafter=(head.kind, DRAFTS[head.kind])),
        [3, 1, 0],
        41,
        pair=(model, model),
        stop_tokens=(),
    )
    assert session.end.tokens == toys.greedy_text(model.decoder, [3, 1, 0], 41)
    return [step.accepted for step in session.sink.steps]


def test_the_net_writes_the_cycle_and_looks_back() -> None:
    rows = text(looking(), 20, 30, 3)
    assert (torch.tensor(NEXT)[rows[:, :-1]] == rows[:, 1:]).float().mean() > 0.99
    seen = looking().states(rows)[1][:, 3:, V : 4 * V].unflatten(2, (3, V)).argmax(-1)
    assert all(torch.equal(seen[:, :, h], rows[:, 2 - h : 29 - h]) for h in range(3))


@pytest.mark.parametrize("kind", SLOTTED)
def test_trained_slots_draft_the_cycle_without_a_fault(kind: str, tmp_path: Path) -> None:
    """Training and drafting agree on every shift: all drafted tokens are accepted, in every step."""
    head = trained(kind)
    assert all(row[0] > 0.97 for row in training.measure(looking(), head, text(looking(), 32, 24, 999)))
    assert decoded(head, tmp_path)[1:-1] == [3] * 9


@pytest.mark.nightly
@pytest.mark.parametrize("kind", SLOTTED)
def test_slots_trained_one_token_off_never_guess_right(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = training.target_logits
    with monkeypatch.context() as patched:
        patched.setattr(
            training,
            "target_logits",
            lambda net, features, places, count: wanted(net, features, places + 1, count),
        )
        head = trained(kind)
        assert all(
            row[0] > 0.97 for row in training.measure(looking(), head, text(looking(), 32, 24, 999)[:, :-1])
        )
    assert all(row[0] < 0.1 for row in training.measure(looking(), head, text(looking(), 32, 24, 999)))
    assert sum(decoded(head, tmp_path)) == 0


@pytest.mark.parametrize("kind", SLOTTED)
def test_training_sees_what_the_check_sees(kind: str, tmp_path: Path) -> None:
    """Compare the guesses of a training pass with the slots of a run of the same model, place by place."""
    head = training.new_head(kind, net(), seed=1, **SHAPES[kind])
    with torch.no_grad():
        for p in head.parameters():
            # as in the file
            p.copy_((p + torch.randn(p.shape, generator=torch.Generator().manual_seed(2))).to(torch.bfloat16))
    net().to_folder(tmp_path)
    write_head(head, tmp_path / "heads" / kind)
    model, same = load(tmp_path, "float32", "cpu"), Net.from_folder(tmp_path)  # both with the file's rounding
    session = toys.Session(
        model,
        toys.method(drafter=(kind, DRAFTS[kind])),
        text(net(), 1, 9, 0)[0].tolist(),
        max_new_tokens=30,
        stop_tokens=(),
    )
    session.start()
    observe, seen, compared = session.drafter.observe, [], 0
    session.drafter.observe = lambda outcome: (seen.append(outcome), observe(outcome))[1]  # type: ignore[method-assign]
    for _ in range(6):
        now = list(session.tokens)
        session.step()
        slots, path = seen[-1].draft.slots, [seen[-1].draft.tokens[x] for x in seen[-1].verdict.path]
        last = seen[-1].verdict.path[-1] if path else -1
        mine = seen[-1].slots[[i for i, node in enumerate(slots.at) if node == last]]
        ids = torch.tensor([[*now, *path]])
        due = training.slot_logits(
            same, head, training.read_context(same, ids)[0], torch.tensor([ids.shape[1] - 1])
        )[0, 0]
        assert len(mine) and torch.allclose(mine, due[: len(mine)], atol=1e-3)
        compared += len(mine)
    assert compared > 12


@pytest.mark.parametrize("kind", SLOTTED)
def test_a_training_that_was_cut_off_goes_on_as_if_it_had_not_been(kind: str, tmp_path: Path) -> None:
    rows, kept = text(net(), 64, 24, 1), tmp_path / "kept.pt"
    before = [p.clone() for p in net().parameters()]
    whole, cut = (training.new_head(kind, net(), seed=1, **SHAPES[kind]) for _ in range(2))
    first = float(training.loss_of(net(), whole, rows, torch.arange(4, 18, 3)).detach())
    training.train(net(), whole, rows, 60, places=8)

    def stop(said: str) -> None:
        if said.startswith("step 50"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        training.train(net(), cut, rows, 60, places=8, kept=kept, say=stop)
    again = training.new_head(kind, net(), seed=5, **SHAPES[kind])
    said: list[str] = []
    assert training.train(net(), again, rows, 60, places=8, kept=kept, say=said.append) == 60
    assert "behind step 25" in said[0]
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))
    assert float(training.loss_of(net(), whole, rows, torch.arange(4, 18, 3))) < first - 0.2
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, net().parameters(), strict=True))


@pytest.mark.parametrize("kind", SLOTTED)
def test_the_floor_is_told_no_token_that_a_slot_is_not_told(kind: str) -> None:
    """On random ids the net follows only the last token: a table that reads it is always right, any other is at chance."""
    rows = torch.from_numpy(np.random.default_rng(0).integers(V, size=(32, 24)))
    language = text(looking(), 64, 24, 6).numpy()
    fair, told = (
        training.trigram_floor(looking(), kind, 3, language, rows, root)[0] for root in (False, True)
    )
    assert fair < 0.2 and told > 0.97
