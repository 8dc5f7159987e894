"""Training of exits: new exits read as the model does, training brings them nearer, the shipped ones belong to their model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cyclic import cyclic

from decodescope.engine.model.checkpoint.folder import read_json
from decodescope.engine.session.load import fingerprint
from decodescope.training import exits as training

ASSETS = Path(__file__).resolve().parents[2] / "assets"

SHIPPED = ASSETS / "models" / "lab" / "heads" / "exits"


def text(rows: int) -> torch.Tensor:
    """int64 [rows, 24] of random ids."""
    return torch.randint(cyclic().shape.vocabulary, (rows, 24), generator=torch.Generator().manual_seed(rows))


def test_fresh_exits_read_a_state_as_the_last_norm_and_the_unembedding_do() -> None:
    net, ids = cyclic(), text(3)
    head = training.new_head(net, rank=4)
    for layer, x in enumerate(net.states(ids)[1:-1], 1):
        feature = head(x, layer)
        assert torch.allclose(net.unembed(feature), net.head(x), atol=1e-5)
        assert torch.allclose(head.confidence(x, layer), torch.full(ids.shape, 0.5)), (
            "an untrained classifier says one half"
        )


def test_training_brings_each_exit_nearer_to_the_whole_model_and_leaves_that_as_it_is() -> None:
    net = cyclic().requires_grad_(False)
    head, before = training.new_head(net, rank=4), {k: x.clone() for k, x in net.state_dict().items()}
    first = training.measure(net, head, text(8))
    parts = iter(text(16 * 60).split(16))
    training.train(net, head, parts, 60, 1e-2)
    training.fit_classifiers(net, head, iter(text(64).split(16)), 1000)
    last = training.measure(net, head, text(8))
    assert all(new["diverges"] < old["diverges"] for old, new in zip(first, last, strict=True))
    assert all(torch.equal(x, before[k]) for k, x in net.state_dict().items())


def test_a_score_tells_right_from_wrong_by_the_share_of_pairs_in_order() -> None:
    right = torch.tensor([True, False, True, False])
    assert training.ranking_accuracy(torch.tensor([0.9, 0.1, 0.8, 0.2]), right) == 1.0
    assert training.ranking_accuracy(torch.tensor([0.1, 0.9, 0.2, 0.8]), right) == 0.0
    assert training.ranking_accuracy(torch.tensor([0.3, 0.2, 0.1, 0.4]), right) == pytest.approx(0.25)


def test_the_shipped_exits_belong_to_their_model_and_agree_more_often_than_before() -> None:
    config = read_json(SHIPPED, "config.json")
    assert config["target"] == fingerprint(SHIPPED.parents[1]), "the model was trained again after its exits"
    assert sum(x.stat().st_size for x in SHIPPED.iterdir()) < 200_000
    for row in config["held_out"]:
        assert (
            row["agrees"] > row["agrees_before"]
            and row["diverges"] < row["diverges_before"]
            and row["tells"] > 0.6
        )
