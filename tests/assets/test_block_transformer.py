"""lab-blocks: the whole computation in training equals the engine's, block by block, and the shipped model learnt something."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from decodescope.engine import Session
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.session.load import load
from decodescope.training import block_transformer as b
from decodescope.training import data
from decodescope.training.net import NetShape

ASSETS = Path(__file__).resolve().parents[2] / "assets"


def tiny() -> b.BlockNet:
    """An untrained net with numbers that its folder can store."""
    torch.manual_seed(0)
    sizes = dict(layers=2, width=16, heads=2, kv_heads=2, head_width=8, inner=24, context=64)
    net = b.BlockNet(NetShape(**sizes, vocabulary=b.VOCABULARY))
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_((weight * 12 if weight.ndim > 1 else weight).bfloat16())
    return net


def test_the_engine_says_what_the_training_computes_at_once(tmp_path: Path) -> None:
    net = tiny()
    b.write(net, tmp_path, {"steps": 0})
    model, prompt = load(tmp_path, "float64", "cpu"), list(range(20, 33))
    session = Session(model, {"strategy": "block_transformer"}, prompt, max_new_tokens=19)
    session.start()
    forward, seen = session.target.forward, []
    session.target.forward = lambda feed: seen.append(forward(feed)) or seen[-1]  # type: ignore[method-assign] # listens
    for _ in session.stream():
        pass
    text = [b.PAD] * 3 + prompt + session.end.tokens + [0]
    # float32 cosines: only training uses them
    whole = net.double()(torch.tensor([text]))[0].flatten(0, 1)[12:-1]
    assert torch.allclose(torch.cat(seen)[:, 0], whole, atol=1e-6) and whole.std() > 0.1
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"block_length": 4', '"block_length": 0'))
    with pytest.raises(LoadError, match="gives block_length as 0; it must be a whole number from 1"):
        load(tmp_path)


def test_padding_goes_in_front_and_the_last_tokens_out() -> None:
    rows = torch.arange(20, 36).view(2, 8)
    assert b.pad_windows(rows, 3).tolist() == [[1, 1, 1, 20, 21, 22, 23, 24], [1, 1, 1, 28, 29, 30, 31, 32]]
    assert torch.equal(b.pad_windows(rows, 0), rows)


def test_the_short_tokenizer_writes_every_text_with_the_first_ids() -> None:
    short, text = Tokenizer.from_str(b.shorten_tokenizer()), "Once upon a time, said the fox – 37 times.\n"
    coded = short.encode(text)
    assert short.decode(coded.ids) == text and short.get_vocab_size() == b.VOCABULARY
    whole = Tokenizer.from_file(str(data.TOKENIZER))
    assert all(whole.id_to_token(i) == short.id_to_token(i) for i in range(b.VOCABULARY))
    assert len(coded.ids) < 0.8 * len(text.encode()), "merges are used"


@torch.inference_mode()
def test_the_shipped_model_knows_how_stories_go_on() -> None:
    model = load("lab-blocks", "float32", "cpu")
    session = Session(
        model,
        {"strategy": "block_transformer"},
        model.tokenizer.encode("Once upon a time"),
        max_new_tokens=48,
    )
    for _ in session.stream():
        pass
    words = model.tokenizer.decode(session.end.tokens).split()
    known = {"the", "a", "and", "was", "to"} | set(
        (ASSETS.parent / "training" / "tale.py").read_text().replace('"', " ").split()
    )
    assert len(words) > 12 and sum(x in known for x in words) > len(words) / 4, words
