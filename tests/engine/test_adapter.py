"""Adapters: merged while they are read, part of the model's name and fingerprint, refused if they belong to another model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import made
from safetensors.torch import load_file, save_file
from sizes import sizes
from torch import Tensor

from decodescope.engine import Method, Session
from decodescope.engine.methods.strategies.jacobi import Jacobi
from decodescope.engine.model.checkpoint.adapter import join_reference, split_reference, write
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model, find_model, fingerprint, load, shipped_models
from decodescope.engine.session.method import MethodError
from decodescope.engine.session.replay.fork import check_same_models
from decodescope.engine.session.run import encode_text_or_ids
from decodescope.engine.trace import Trace, check

RANK, ALPHA = 2, 6.0
EMBED = "model.embed_tokens.weight"
MATRICES = {
    "model.layers.0.self_attn.q_proj.weight": (16, 16),
    "model.layers.0.self_attn.v_proj.weight": (8, 16),
    "model.layers.1.self_attn.o_proj.weight": (16, 16),
    "model.layers.0.mlp.up_proj.weight": (24, 16),
    "model.layers.1.mlp.down_proj.weight": (16, 24),
}


def deltas(size: float = 1.0) -> dict[str, Tensor]:
    """A and B for some matrices, with numbers that bfloat16 can hold."""
    g, tensors = torch.Generator().manual_seed(7), {}
    for name, (rows, columns) in MATRICES.items():
        tensors[f"{name}.A"] = torch.randn(RANK, columns, generator=g).bfloat16().float()
        tensors[f"{name}.B"] = size * torch.randn(rows, RANK, generator=g).bfloat16().float()
    return tensors


def adapted(folder: Path, tensors: Mapping[str, Tensor], name: str = "more", **config: Any) -> str:
    """Give the model of `folder` an adapter; return the reference of the two together."""
    said: dict[str, Any] = {"rank": RANK, "alpha": ALPHA, "base": fingerprint(folder), **config}
    write(folder / "adapters" / name, tensors, **said)
    return f"{folder}+{name}"


def logits(model: Model) -> Tensor:
    """The logits, float [6, V], after some tokens, without a cache."""
    session = Session(model, Method(), [5, 11, 23, 2, 9, 30], max_new_tokens=1)
    return session.target.forward(Feed.causal_chain([5, 11, 23, 2, 9, 30], 0, model.decoder.device))[
        0
    ].clone()


def by_hand(folder: Path, into: Path, tensors: Mapping[str, Tensor], rows: Mapping[str, list[int]]) -> Path:
    """Write a float64 checkpoint with the matrices W + alpha / rank * B A, and with the rows of the adapter."""
    shutil.copytree(folder, into, ignore=shutil.ignore_patterns("adapters"))
    weights = {name: x.double() for name, x in load_file(folder / "model.safetensors").items()}
    for name in {x[:-2] for x in tensors if x[-2:] in (".A", ".B")}:
        a, b = (tensors[f"{name}.{side}"].bfloat16().double() for side in "AB")
        for i in range(a.shape[1]):
            weights[name][:, i] += sum(ALPHA / RANK * b[:, r] * a[r, i] for r in range(RANK))
    for name, ids in rows.items():
        for i, token in enumerate(ids):
            weights[name][token] = tensors[f"{name}.rows"][i].bfloat16().double()
    save_file(weights, into / "model.safetensors")
    return into


@pytest.mark.parametrize("tied", [True, False])
def test_an_adapted_model_is_the_one_whose_matrices_were_changed_by_hand(tmp_path: Path, tied: bool) -> None:
    folder = made(tmp_path / "base", tie_word_embeddings=tied)
    rows = {EMBED: [4, 5, 39]} | ({} if tied else {"lm_head.weight": [0, 17]})
    tensors = deltas() | {f"{name}.rows": torch.randn(len(ids), 16) for name, ids in rows.items()}
    here = load(adapted(folder, tensors, rows=rows), "float64", "cpu")
    there = load(by_hand(folder, tmp_path / "changed", tensors, rows), "float64", "cpu")
    assert torch.allclose(logits(here), logits(there), rtol=0, atol=1e-12)
    assert (logits(here) - logits(load(folder, "float64", "cpu"))).abs().max() > 0.1, (
        "the adapter does something"
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_an_adapter_of_zeros_is_another_model_with_the_same_numbers(tmp_path: Path, dtype: str) -> None:
    folder = made(tmp_path / "base")
    base, zero = load(folder, dtype, "cpu"), load(adapted(folder, deltas(0.0)), dtype, "cpu")
    assert torch.equal(logits(base), logits(zero))
    assert base.fingerprint == fingerprint(folder) != zero.fingerprint
    assert (base.name, zero.name) == ("base", "base+more") and zero.reference == f"{folder}+more"
    assert (
        zero.spec.adapter == zero.spec.record()["adapter"] == "more" and "adapter" not in base.spec.record()
    )


def test_two_adapters_and_the_base_are_three_models(tmp_path: Path) -> None:
    folder = made(tmp_path / "base")
    names = [str(folder), adapted(folder, deltas()), adapted(folder, deltas(0.5), "less")]
    assert len({load(x, device="cpu").fingerprint for x in names}) == 3
    before = load(names[1], device="cpu").fingerprint
    adapted(folder, deltas(0.25))
    assert load(names[1], device="cpu").fingerprint != before, "of another adapter under the same name"


def test_a_reference_is_taken_apart_and_put_together(tmp_path: Path) -> None:
    for whole, parts in {
        "lab+cllm": ("lab", "cllm"),
        "./a+b/c": ("./a+b/c", ""),
        "lab": ("lab", ""),
        "+x": ("+x", ""),
    }.items():
        assert split_reference(whole) == parts and join_reference(*parts) == whole
    assert split_reference(Path("some/lab+cllm")) == (Path("some/lab"), "cllm")
    odd = made(tmp_path / "one+two")
    assert find_model(str(odd)) == ("one+two", odd, "", ""), "a folder that is called so"
    reference = adapted(odd, deltas())
    assert find_model(reference) == ("one+two+more", odd, "more", "")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another base": (
        {"base": "0123456789abcdef"},
        "trained on a model with the fingerprint 0123456789abcdef",
    ),
    "another rank": ({"rank": 3}, "another shape than its rank"),
    "no rank": ({"rank": True}, "whole number from 1 to 1024"),
    "a great rank": ({"rank": 1 << 20}, "whole number from 1 to 1024"),
    "no alpha": ({"alpha": "much"}, "must be a number"),
    "an infinite alpha": ({"alpha": float("inf")}, "must be a number"),
    "no base": ({"base": None}, "which model it is for"),
    "rows of nothing": ({"rows": {EMBED: [1, 2]}}, "does not hold"),
    "odd rows": ({"rows": [1, 2]}, "lists of ids"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_config_that_does_not_fit_is_refused_with_a_sentence(tmp_path: Path, case: str) -> None:
    folder = made(tmp_path / "base")
    reference = adapted(folder, deltas())
    path = folder / "adapters" / "more" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | REFUSED[case][0]))
    refused(reference, REFUSED[case][1])


def refused(reference: str, match: str) -> None:
    """Check that `load` refuses with one sentence that matches."""
    with pytest.raises(LoadError, match=match) as error:
        load(reference, device="cpu")
    text = str(error.value)
    assert text.isprintable() and text.endswith(".") and ". " not in text.replace(reference, "")


NORM, Q = "model.norm.weight", "model.layers.0.self_attn.q_proj.weight"
TENSORS: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "half of a delta": ({f"{Q}.A": None}, "q_proj.weight.A is missing"),
    "another width": ({f"{Q}.A": torch.zeros(RANK, 9)}, "another shape"),
    "a norm": ({f"{NORM}.A": torch.zeros(RANK, 16)}, "changes no matrix"),
    "an unknown name": ({"model.layers.7.mlp.up_proj.weight.A": torch.zeros(RANK, 16)}, "changes no matrix"),
    "rows of a matrix": ({f"{Q}.rows": torch.zeros(1, 16)}, "changes no matrix"),
    "rows nobody named": ({f"{EMBED}.rows": torch.zeros(1, 16)}, "ascending ids below 40"),
    "whole numbers": ({f"{Q}.A": torch.zeros(RANK, 16, dtype=torch.int8)}, "stores .* as I8"),
    "no number": ({f"{Q}.A": torch.full((RANK, 16), torch.nan)}, "not finite"),
    "more than the type holds": ({f"{Q}.A": torch.full((RANK, 16), 3e38)}, "not finite"),
}


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_that_do_not_fit_are_refused_with_a_sentence(tmp_path: Path, case: str) -> None:
    folder = made(tmp_path / "base")
    reference = adapted(folder, deltas())
    path = folder / "adapters" / "more" / "model.safetensors"
    tensors: dict[str, Tensor | None] = {**load_file(path), **TENSORS[case][0]}
    save_file({name: x for name, x in tensors.items() if x is not None}, path)
    refused(reference, TENSORS[case][1])


def test_what_is_not_there_or_lies_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "base")
    refused(f"{folder}+more", r"no adapter 'more' \(it has none\)")
    adapted(folder, deltas())
    refused(f"{folder}+mroe", r"no adapter 'mroe' \(it has more\)")
    (folder / "adapters" / "more" / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0damaged!")
    refused(f"{folder}+more", "no whole safetensors file")
    (folder / "adapters" / "more" / "model.safetensors").unlink()
    refused(f"{folder}+more", "has no model.safetensors")


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "base")
    adapted(folder, deltas())
    shutil.move(folder / "adapters" / "more", tmp_path / "elsewhere")
    (folder / "adapters" / "more").symlink_to(tmp_path / "elsewhere")
    refused(f"{folder}+more", "a link that leads out")


def test_drafting_on_an_adapted_model_writes_its_own_greedy_text_and_the_trace_names_it(
    tmp_path: Path,
) -> None:
    folder = made(tmp_path / "base")
    base, model = load(folder, "float64", "cpu"), load(adapted(folder, deltas()), "float64", "cpu")
    prompt = [5, 6, 7, 5, 6, 7, 5, 6]

    def written(on: Model, **parts: Any) -> Session:
        session = Session(on, Method.from_names(parts), prompt, max_new_tokens=40)
        session.sink = Trace()
        for _ in session.stream():
            pass
        return session

    plain, drafted = written(model), written(model, drafter="prompt_lookup")
    assert drafted.tokens == plain.tokens != written(base).tokens
    assert drafted.sink is not None and drafted.sink.header is not None
    assert any(len(step.emitted) > 1 for step in drafted.sink.steps), "some drafts are right"
    assert check(drafted.sink).ok
    header = drafted.sink.header
    assert (header.model["name"], header.model["adapter"]) == ("base+more", "more")
    assert header.model["fingerprint"] == model.fingerprint
    check_same_models(header, {"target": model}, [])
    with pytest.raises(MethodError, match="whose weights are others"):
        check_same_models(header, {"target": base}, [])


@sizes("most", usual=1, full=100)
def test_shipped_adapters_do_what_their_cards_say(most: int) -> None:
    """most: number of adapters under which texts are written; the card of every adapter is read."""
    shipped = [x for x in shipped_models() if x["adapter"]]
    due = {
        "lab+cllm",
        "lab+ditto",
        "lab+lud",
        "lab+outline",
        "lab+skipdecode",
        "lab+skip_layer",
        "lab-mdm+cloze",
    }
    assert due <= {x["name"] for x in shipped}
    for turn, row in enumerate(x for x in shipped if x["path"].name == "lab"):
        card = json.loads((row["path"] / "adapters" / row["adapter"] / "config.json").read_text())
        nats = card["measured"]["nats"]
        # with all layers, the adapter that learnt to run six of ten blocks loses most
        assert nats["adapted"] <= nats["base"] + (0.35 if row["adapter"] == "skip_layer" else 0.1), row[
            "name"
        ]
        for size in (8, 16) if row["adapter"] == "cllm" else ():
            passes = card["measured"][f"passes of a block of {size}"]
            assert passes["adapted"] < passes["base"] <= size, row["name"]
        if turn >= most:
            continue
        model = load(row["name"], "float32", "cpu")
        for text in ("Once upon a time there was a small", "def area(width, height):\n    "):
            written = []
            for method in (Method(), Method(strategy=Jacobi(block=8, initial_guess="prompt"))):
                session = Session(model, method, encode_text_or_ids(model, text), max_new_tokens=24)
                for _ in session.stream():
                    pass
                written.append(session.tokens)
            assert written[0] == written[1], "Jacobi's text is plain decoding's"
