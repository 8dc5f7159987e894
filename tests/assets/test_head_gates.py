"""DuoAttention's gates: windows ask for what was said before, gates blend two readings, the shipped ones beat chance."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
import torch

from decodescope.engine.session.load import fingerprint
from decodescope.training import head_gates as training
from decodescope.training.net import Net, NetShape

ASSETS = Path(__file__).resolve().parents[2] / "assets"

SHIPPED = ASSETS / "models" / "lab" / "heads" / "duo_attention"


def net() -> Net:
    """A random net that knows the shipped vocabulary."""
    torch.manual_seed(3)
    return Net(NetShape(2, 32, 4, 2, 8, 48)).requires_grad_(False)


def test_what_is_asked_was_said_further_back_than_a_streaming_head_sees() -> None:
    for ids, marks in islice(training.windows(0, "train"), 4):
        assert ids.shape == marks.shape == (training.LENGTH,) and 20 < marks.sum() < 200
        for at in marks.nonzero()[:, 0].tolist():
            pair = ids[at : at + 2]  # the token before it, and the token that is asked for
            before = (ids[:-1] == pair[0]) & (ids[1:] == pair[1])
            assert before[: at - training.RECENT].any()


@torch.no_grad()
def test_open_gates_are_the_model_and_closed_ones_a_band() -> None:
    made, ids = net(), torch.arange(40)[None]
    part, x = training.GatesPart(made, 0), made.model.embed_tokens(ids)
    whole = made.model.norm(made.states(ids)[-1])

    def read(alpha: float, sinks: int, recent: int) -> torch.Tensor:
        gates = torch.full_like(part.head.alpha, alpha)
        return training.features(made, x, training.attend(gates, training.streaming_mask(40, sinks, recent)))

    assert torch.allclose(read(1.0, 2, 4), whole, atol=1e-5) and torch.allclose(
        read(0.0, 0, 40), whole, atol=1e-5
    )
    assert torch.allclose(read(0.0, 2, 4)[:, :7], whole[:, :7], atol=1e-5), "so long nothing is out of sight"
    assert not torch.allclose(read(0.0, 2, 4)[:, 7:], whole[:, 7:], atol=1e-4)


def test_a_price_alone_closes_the_gates() -> None:
    """A random net repeats nothing, so closing a head costs nothing."""
    part = training.GatesPart(net(), 0)
    part.loss().backward()
    assert (part.head.alpha.grad > 0).all()


@pytest.mark.skipif(not SHIPPED.exists(), reason="no gates are shipped")
def test_the_shipped_gates_belong_to_their_model_and_beat_chance_and_a_window() -> None:
    config = json.loads((SHIPPED / "config.json").read_text())
    assert config["target"] == fingerprint(SHIPPED.parents[1]), "the model was trained again after its gates"
    figures = config["measured"]
    for share in ("50% stream", "75% stream"):
        nats = {name: row[0] for name, row in figures[share].items()}
        assert nats["trained"] < min(nats["random"], nats["all stream"]) - 0.1
