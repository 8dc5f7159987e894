"""The shipped past-future heads belong to their models, imitate better than an unchanged state, and work on an encoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from decodescope.engine.bench.cloze import ClozeBench, load_cloze_questions
from decodescope.engine.core.component import build
from decodescope.engine.model.checkpoint.folder import read_json
from decodescope.engine.session.load import fingerprint, load

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"


@pytest.mark.parametrize(("model", "adapter"), [("lab-mdm", "cloze")])
def test_the_shipped_heads_belong_to_their_model_and_imitate_better_than_the_state_itself(
    model: str, adapter: str
) -> None:
    shipped = MODELS / model / "heads" / "past_future"
    config = read_json(shipped, "config.json")
    assert config["target"] == fingerprint(MODELS / model, adapter), (
        "the model was trained again after its heads"
    )
    assert sum(x.stat().st_size for x in shipped.iterdir()) < 100_000 and config["made_with"]["adapter"] == (
        adapter or None
    )
    for row in config["held_out"]:
        assert row["cosine"] > row["cosine_before"] and row["tells"] > 0.6


def test_an_encoder_leaves_early_by_it_and_answers_nearly_as_before() -> None:
    asked = [q for q in load_cloze_questions(each=30) if q.sort != "claim"]
    bench = ClozeBench(load("lab-mdm+cloze", "float32", "cpu"), asked)
    whole = bench.measure("whole", build("adaptive_depth", "all_layers", {}))
    early = bench.measure(
        "early", build("adaptive_depth", "past_future", {"threshold": 0.9, "min_layers": 1, "heads": "exits"})
    )
    never = bench.measure(
        "never",
        build("adaptive_depth", "past_future", {"threshold": 1.01, "min_layers": 1, "heads": "exits"}),
    )
    assert never.right == whole.right and never.layers == whole.layers and never.tests == 5 * len(asked)
    assert sum(early.right.values()) >= 0.9 * sum(whole.right.values()) and early.layers < whole.layers
    assert whole.flops < never.flops < 1.01 * whole.flops, "a test costs little"
