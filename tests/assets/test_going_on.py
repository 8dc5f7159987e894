"""With --from, training starts from the shipped weights: after zero steps it writes the same numbers again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from decodescope.training import adapters, cacheparts, skip_layer

ASSETS = Path(__file__).resolve().parents[2] / "assets"
LAB = ASSETS / "models" / "lab"

HERE = [x.name for x in sorted((LAB / "adapters").iterdir()) if x.name in adapters.ADAPTERS]
WORDS = ["--within", "1", "--steps", "0", "--threads", "1"]


def same(made: Path, shipped: Path) -> None:
    """Compare the tensors, and check that the config records what they were made from."""
    mine, theirs = load_file(made / "model.safetensors"), load_file(shipped / "model.safetensors")
    assert mine.keys() == theirs.keys() and all(torch.equal(x, theirs[name]) for name, x in mine.items())
    said, before = (json.loads((x / "config.json").read_text())["made_with"] for x in (made, shipped))
    assert said["from"] == before and said["steps"] == 0


def nothing(self: Any, *_: Any) -> Any:
    """Replace reading the corpus and measuring, and do nothing."""
    return {}


@pytest.mark.parametrize("name", HERE)
def test_an_adapter_begins_with_the_shipped_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "BUILD", tmp_path)
    for what in ("learn", "measure"):
        monkeypatch.setattr(adapters.ADAPTERS[name], what, nothing)
    adapters.main([name, *WORDS, "--from", str(LAB / "adapters"), "--into", str(tmp_path)])
    same(tmp_path / name, LAB / "adapters" / name)


@pytest.mark.parametrize("name", [x for x in cacheparts.PARTS if (LAB / "heads" / x).is_dir()])
def test_a_part_of_the_cache_begins_with_the_shipped_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cacheparts.PARTS[name], "measure", nothing)
    cacheparts.main([name, *WORDS, "--from", str(LAB / "heads"), "--into", str(tmp_path)])
    same(tmp_path / name, LAB / "heads" / name)


def test_routers_and_their_adapter_begin_with_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for what, value in (("learn", nothing), ("measure", nothing), ("calibrate_biases", lambda self: 0.0)):
        monkeypatch.setattr(skip_layer.SkipLayerAdapter, what, value)
    skip_layer.main([*WORDS, "--from", str(LAB), "--into", str(tmp_path)])
    for kind in ("heads", "adapters"):
        same(tmp_path / kind / "skip_layer", LAB / kind / "skip_layer")
