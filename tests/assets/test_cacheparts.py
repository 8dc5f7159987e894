"""Training of cache parts: a pass reads as the model does, each part learns, the model stays, and the file says all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from cyclic import sharp as net

from decodescope.engine.methods.kv_compression.kivi import Kivi
from decodescope.engine.model.heads.files import load_head
from decodescope.engine.session.load import load
from decodescope.training import cacheparts as training
from decodescope.training.cachenet import features
from decodescope.training.heads import write_head
from decodescope.training.prefix_state import PrefixPart
from decodescope.training.soft_prompt import SoftPromptPart


def text(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    """int64 [rows, length]."""
    return torch.randint(13, (rows, length), generator=torch.Generator().manual_seed(seed))


def soft(tokens: int = 3) -> SoftPromptPart:
    """A soft prompt with a KV compression that packs four entries at a time."""
    return SoftPromptPart(net(), 0, tokens, Kivi(bits="2", group=4, buffer=4))


def fed(part: PrefixPart | SoftPromptPart, rows: torch.Tensor) -> PrefixPart | SoftPromptPart:
    """Make the part learn from these rows only, and return it."""
    part._batches = iter(lambda: rows, None)
    return part


@torch.no_grad()
def test_a_pass_without_a_part_is_the_models() -> None:
    ids = text(2, 14)
    x, part = net().model.embed_tokens(ids), soft()
    mine = features(net(), x, part.attend(0, packs=False))
    assert torch.allclose(mine, net().model.norm(net().states(ids)[-1]), atol=1e-5)
    assert not torch.allclose(features(net(), x, part.attend(0)), mine, atol=1e-3), (
        "two bits change something"
    )


@pytest.mark.parametrize("make", [lambda: PrefixPart(net(), 0, "none"), soft], ids=["prefix", "soft"])
def test_a_part_learns_and_the_model_stays(make: object, tmp_path: Path) -> None:
    before = {name: w.clone() for name, w in net().state_dict().items()}
    part = fed(make(), text(4, 17, 5))  # type: ignore[operator]
    with torch.no_grad():
        first = float(part.loss())
    assert training.train(part, 60, 30, lambda said: None) == 30
    with torch.no_grad():
        assert float(part.loss()) < first - 0.05
    assert all(bool((w == before[name]).all()) for name, w in net().state_dict().items())
    net().to_folder(tmp_path)
    write_head(part.head, tmp_path / "heads" / part.head.kind, {"measured": {"nats": 1.0}})
    spec = load(tmp_path, "float32", "cpu").spec
    kept = load_head(tmp_path / "heads" / part.head.kind, spec, part.head.kind)
    assert all(torch.equal(x, kept.tensors()[name]) for name, x in part.head.tensors().items()), (
        "it was measured as it is kept"
    )
    assert json.loads((tmp_path / "heads" / part.head.kind / "config.json").read_text())["measured"] == {
        "nats": 1.0
    }


def test_training_ends_in_time() -> None:
    assert training.train(fed(soft(), text(1, 9)), 0.0, 5, lambda said: None) == 0
