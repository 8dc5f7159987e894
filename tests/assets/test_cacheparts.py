"""Training of cache parts: a pass reads as the model does, each part learns, the model stays, and the file says all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from cyclic import sharp as net

from decodescope.engine.methods.kv_compression.kivi import Kivi
from decodescope.engine.methods.prompt_compression.coprocessor import CacheCoprocessor
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.files import load_head
from decodescope.engine.session.load import load
from decodescope.engine.session.method import Method
from decodescope.engine.session.session import Session
from decodescope.training import cacheparts as training
from decodescope.training.cachenet import features, nats
from decodescope.training.coprocessor import AHEAD, CoprocessorPart
from decodescope.training.heads import write_head
from decodescope.training.net import Net
from decodescope.training.prefix_state import PrefixPart
from decodescope.training.soft_prompt import SoftPromptPart


def text(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    """int64 [rows, length]."""
    return torch.randint(13, (rows, length), generator=torch.Generator().manual_seed(seed))


def soft(tokens: int = 3) -> SoftPromptPart:
    """A soft prompt with a KV compression that packs four entries at a time."""
    return SoftPromptPart(net(), 0, tokens, Kivi(bits="2", group=4, buffer=4))


def latents(computes: bool = True) -> CoprocessorPart:
    """A coprocessor of three soft tokens."""
    return CoprocessorPart(net(), 0, 3, 4, computes)


Part = PrefixPart | SoftPromptPart | CoprocessorPart


def fed(part: Part, rows: torch.Tensor) -> Part:
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


@pytest.mark.parametrize(
    "make", [lambda: PrefixPart(net(), 0, "none"), soft, latents], ids=["prefix", "soft", "latents"]
)
def test_a_part_learns_and_the_model_stays(make: object, tmp_path: Path) -> None:
    before = {name: w.clone() for name, w in net().state_dict().items()}
    part = fed(make(), text(4, 2 + AHEAD, 5))  # type: ignore[operator]
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


@torch.no_grad()
def test_latents_are_read_in_training_as_in_decoding(tmp_path: Path) -> None:
    """The loss of a place is that of a run on the written model, forced to the text; several places do not see each other."""
    net().to_folder(tmp_path)
    part = CoprocessorPart(Net.from_folder(tmp_path), 0, 3, 4)
    draw = torch.Generator().manual_seed(1)
    for x in part.head.parameters():
        x.copy_((torch.randn(x.shape, generator=draw) * 0.3).to(torch.bfloat16))
    write_head(part.head, tmp_path / "heads" / "coprocessor")
    model = load(tmp_path, "float32", "cpu")
    ids, places = text(1, AHEAD + 9, 2), torch.tensor([[3, 7]])
    due = []
    for place in places[0].tolist():
        method = Method(prompt_compression=CacheCoprocessor())
        session = Session(model, method, ids[0, : place + 1].tolist(), max_new_tokens=1)
        session.start()
        feed = Feed.causal_chain(ids[0, place : place + AHEAD].tolist(), place)
        logits = session.target.forward(feed, "score")[0]
        due.append(float(F.cross_entropy(logits, ids[0, place + 1 : place + 1 + AHEAD])))
    each = [float(part.loss_of(ids, places[:, i : i + 1])) for i in range(2)]
    assert each == pytest.approx(due, abs=1e-4) and abs(each[0] - each[1]) > 0.01
    assert float(part.loss_of(ids, places)) == pytest.approx(sum(each) / 2, abs=1e-5)
    assert abs(float(part.loss_of(ids, places, latent=False)) - sum(each) / 2) > 0.01


@torch.no_grad()
def test_an_untrained_baseline_puts_the_soft_tokens_themselves() -> None:
    ids, places = text(2, AHEAD + 9, 2), torch.tensor([[4], [4]])
    soft_tokens = latents(computes=False)
    x = net().model.embed_tokens(ids[:, :-1])
    x = torch.cat([x[:, :4], soft_tokens.head.embeds.expand(2, -1, -1), x[:, 4 : 4 + AHEAD]], 1)
    plain = features(net(), x, soft().attend(0, packs=False))[:, 7:]
    due = float(nats(net(), plain, ids[:, 5 : 5 + AHEAD]))
    assert float(soft_tokens.loss_of(ids, places)) == pytest.approx(due, abs=1e-5)
    assert float(latents().loss_of(ids, places)) != pytest.approx(due, abs=1e-3)
