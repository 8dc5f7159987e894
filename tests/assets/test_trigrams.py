"""Training of trigram layers: it brings them nearer to the whole model, which stays; the shipped ones fit their models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import toys

from decodescope.engine.bench.cloze import ClozeBench, load_cloze_questions
from decodescope.engine.core.component import build
from decodescope.engine.model.checkpoint.folder import read_json
from decodescope.engine.session.load import fingerprint, load
from decodescope.training import trigrams as training

ASSETS = Path(__file__).resolve().parents[2] / "assets"

MODEL = ASSETS / "models" / "lab-mdm"
SHIPPED = MODEL / "heads" / "trigrams"


def asked(rows: int, seed: int) -> torch.Tensor:
    """int64 [rows, 10]: random ids, one of them in each row the mask."""
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(6, 13, (rows, 10), generator=g)
    return ids.scatter(1, torch.randint(10, (rows, 1), generator=g), training.MASK)


@pytest.mark.nightly
def test_training_brings_the_layers_nearer_to_the_whole_model_which_stays_as_it_is() -> None:
    decoder = toys.decoder(toys.toy_spec(n_layers=4, causal=False, heads=(), mask_token=5), sharp=1.0)
    head, ids = training.new_head(decoder, 2, 8), asked(64, 1)
    kept = [x.clone() for layer in decoder.layers for x in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    with torch.no_grad():
        first = training.losses(decoder, head, ids)
        due = training.layer_inputs(decoder, ids, 2)
        assert torch.equal(training.layer_inputs(head.apply_to(decoder), ids, 2), due), (
            "maps that change nothing yet"
        )
    training.train(
        decoder, head.requires_grad_(True), iter(asked(48, seed) for seed in range(2, 82)), 80, 1e-2
    )
    with torch.no_grad():
        last = training.losses(decoder, head, ids)
    assert last[0] < 0.7 * first[0] and last[1] < first[1], (first, last)
    now = [x for layer in decoder.layers for x in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    assert all(torch.equal(x, y) for x, y in zip(kept, now, strict=True))


def test_the_rule_reads_a_text_as_training_does() -> None:
    model = load("lab-mdm+cloze", "float32", "cpu")
    bench = ClozeBench(model, load_cloze_questions(each=4))
    decoder, head = model.decoder, model.decoder.heads["trigrams"]
    layer, rule = head.shape["layer"], build("adaptive_depth", "trigrams", {"heads": "trigrams"})
    rule.attach_lane(bench.lane)
    rule.begin(model.spec)
    for ids, place in bench._rows:
        feed = training.Feed.causal_chain(ids, 0, logits=[place])
        with torch.inference_mode():
            said = bench.lane.forward(feed, "canvas", skip=rule.plan(0, feed), depth=rule)[0, 0]
            row = torch.tensor([ids])
            due, _ = training.mask_logits(
                decoder, row, layer, training.layer_inputs(head.apply_to(decoder), row, layer)
            )
        bench.lane.rollback()
        assert torch.allclose(said, due[0], atol=1e-3)


def test_the_shipped_layers_belong_to_their_model_and_answer_nearly_as_it_does() -> None:
    config = read_json(SHIPPED, "config.json")
    assert config["target"] == fingerprint(MODEL, "cloze"), (
        "the model was trained again after its trigram layers"
    )
    assert sum(x.stat().st_size for x in SHIPPED.iterdir()) < 200_000
    told = config["held_out"]
    assert (
        told["after"]["diverges"] < 0.5 * told["before"]["diverges"]
        and told["after"]["agrees"] > told["before"]["agrees"]
    )
    some = [q for q in load_cloze_questions(each=30) if q.sort != "claim"]
    bench = ClozeBench(load("lab-mdm+cloze", "float32", "cpu"), some)
    whole = bench.measure("whole", build("adaptive_depth", "all_layers", {}))
    looked = bench.measure("looked up", build("adaptive_depth", "trigrams", {"heads": "trigrams"}))
    alone = bench.measure("as they are", build("adaptive_depth", "trigrams", {"layers": 2}))
    right = [sum(x.right.values()) for x in (whole, looked, alone)]
    assert right[0] >= right[1] > right[2] and right[1] >= 0.85 * right[0], right
    assert looked.flops < whole.flops * 1.5 and 0 < looked.hits < looked.looked
