"""Training of routers: a text is trained on as it is decoded, the gradient reaches the routers, and the budget holds."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from cyclic import sharp

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.adaptive_depth.skip_layer import SkipLayer
from decodescope.engine.model.checkpoint.adapter import write as write_adapter
from decodescope.engine.model.checkpoint.folder import read_json
from decodescope.engine.model.heads.files import write_head
from decodescope.engine.session.load import fingerprint, load
from decodescope.training import skip_layer as training
from decodescope.training.lowrank import adapter_tensors
from decodescope.training.net import Net

LAB = Path(__file__).resolve().parents[2] / "assets" / "models" / "lab"
LENGTH = 16


def part(seed: int = 0, net: Net | None = None) -> training.SkipLayerAdapter:
    """A new adapter around a random net, with random text."""
    made = training.SkipLayerAdapter((net or copy.deepcopy(sharp())).requires_grad_(False), seed)
    made.length, made.corpus = (
        LENGTH,
        torch.randint(13, (600,), generator=torch.Generator().manual_seed(1)).numpy(),
    )
    return made


def split(made: training.SkipLayerAdapter, seed: int = 3) -> None:
    """Give the routers random weights that open about six of ten blocks."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        made.routers.weight.copy_(torch.randn(made.routers.weight.shape, generator=draw).bfloat16() * 0.2)
        made.routers.bias.fill_(0.25)


@pytest.mark.parametrize("gap", ["propagate", "absent"])
@torch.no_grad()
def test_a_text_is_trained_on_as_it_is_decoded(gap: str, tmp_path: Path) -> None:
    sharp().to_folder(tmp_path / "m")
    made = part(0, Net.from_folder(tmp_path / "m"))  # in bfloat16, as training uses it
    ids = torch.randint(13, (1, LENGTH), generator=torch.Generator().manual_seed(4))
    split(made)
    for delta in made.head.values():
        delta.B.normal_(std=0.1, generator=torch.Generator().manual_seed(5)).copy_(delta.B.bfloat16())
        delta.A.copy_(delta.A.bfloat16())
    base = fingerprint(tmp_path / "m")
    write_adapter(
        tmp_path / "m" / "adapters" / "x", adapter_tensors(made.head), rank=4, alpha=training.ALPHA, base=base
    )
    write_head(made.routers, tmp_path / "m" / "heads" / "skip_layer")
    engine = load(f"{tmp_path / 'm'}+x", "float32", "cpu")
    lane = Lane("target", engine.decoder, build("policy", "keep_all"))
    lane.set_depth_rule(SkipLayer(skipped_kv=gap))
    lane.rule.shown = lane.shown = True
    logits, gates = training.forward_gated(made.net, ids, made.gate, gap == "absent")
    assert torch.allclose(lane.read(ids[0].tolist()), logits[0, -1], atol=1e-3)
    assert (
        lane.rule.take_exit().open_share == pytest.approx(float(gates.mean()))
        and 0.4 < float(gates.mean()) < 0.8
    )


def test_open_routers_and_a_fresh_adapter_are_the_frozen_model() -> None:
    made, ids = part(), torch.randint(13, (2, LENGTH))
    logits, gates = training.forward_gated(made.net, ids, made.gate)
    assert float(gates.detach().mean()) == 1 and torch.allclose(logits, made.base_logits(ids), atol=1e-5)


def test_the_gradient_reaches_every_router_and_a_gate_is_hard() -> None:
    made = part()
    split(made)
    made.batch(0.6, 1.0).backward()
    assert bool((made.routers.weight.grad.abs().sum(1) > 0).all()) and bool(
        (made.routers.bias.grad.abs() > 0).all()
    )
    gate = training.straight_through(torch.tensor([-2.0, 0.5], requires_grad=True), 0.0, made.draw)
    assert gate.tolist() == [0.0, 1.0] and gate.requires_grad


def test_the_budget_holds_and_routers_are_calibrated_to_it() -> None:
    made, lines = part(), list[str]()
    steps = training.train(made, 600, 40, say=lines.append)
    assert steps == 40 and lines
    made.calibrate_biases(200)
    with torch.no_grad():
        texts = made.window(200)
        share = float(training.forward_gated(made.net, texts, made.gate)[1].mean())
    assert abs(share - training.RHO) < 0.02, "on another draw of texts"


def test_training_goes_on_where_it_was() -> None:
    one, other = part(), part(1)
    split(one)
    other.restore(one.state())
    assert all(torch.equal(x, other.state()[name]) for name, x in one.state().items())


def test_the_shipped_routers_belong_to_their_model_keep_the_budget_and_beat_chance() -> None:
    head, adapter = (read_json(LAB / kind / "skip_layer", "config.json") for kind in ("heads", "adapters"))
    assert head["target"] == fingerprint(LAB, "skip_layer"), "the model was trained again after its routers"
    assert adapter["base"] == fingerprint(LAB) and adapter["measured"] == head["measured"]
    assert (
        sum(x.stat().st_size for kind in ("heads", "adapters") for x in (LAB / kind / "skip_layer").iterdir())
        < 350_000
    )
    said = head["measured"]
    assert abs(said["open"] - head["made_with"]["rho"]) < 0.02
    assert said["routed"]["nats"] < said["routed, no adapter"]["nats"] < said["drawn"]["nats"]
