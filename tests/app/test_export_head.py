"""`export head`: the shipped EAGLE-3 head in the layouts of other projects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from decodescope.engine.model.heads.files import load_head
from decodescope.engine.session.load import load


def test_the_command_writes_a_head_of_ours_and_says_where(tmp_path: Path, said: Any) -> None:
    """The shipped head of `lab` has a product of two matrices and the target's vocabulary; both are written out."""
    model, words = load("lab"), ("--model", "lab", "--as")
    ours: Any = model.decoder.heads["eagle3"]
    code, out, _ = said("export", "head", "eagle3", str(tmp_path / "out"), *words, "speculators", "--json")
    assert code == 0 and json.loads(out)["layout"] == "speculators"
    again: Any = load_head(tmp_path / "out", model.spec, "eagle3").share_embedding(model.decoder.embed, "it")
    assert again.remarks == [] and again.own_embed is None and again.ids.equal(ours.ids)
    states = torch.randn(5, ours.shape["states"] * ours.shape["d"])
    assert torch.allclose(again.enter(states), ours.enter(states), atol=1e-4)
    code, out, err = said("export", "head", str(tmp_path / "out"), str(tmp_path / "two"), *words, "sglang")
    assert code == 0 and out.endswith("in the layout of sglang\n"), err
    code, _, err = said("export", "head", "eagle3", str(tmp_path / "out"), *words, "sglang")
    assert code == 2 and "exists already" in err
    code, _, err = said(
        "export", "head", "eagle3", str(tmp_path / "x"), "--model", "lab-draft", "--as", "sglang"
    )
    assert code == 2 and "lab-draft has no heads/eagle3" in err
