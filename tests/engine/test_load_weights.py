"""A model made from another by its name: words, bytes, header, and the combinations that are allowed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from decodescope.app.cli import main
from decodescope.engine import Method, load, run
from decodescope.engine.core.reference import with_weights, without_weights
from decodescope.engine.cost.passes import spec_of
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.layers.matrix import Matrix
from decodescope.engine.session.load import find_model
from decodescope.engine.trace import open_trace
from decodescope.engine.trace.query.summary import summarise

SMALL = "lab-draft"


def test_transforms_stand_behind_the_name(tmp_path: Path) -> None:
    assert without_weights("lab+cllm@int4 group=64+int8") == ("lab+cllm", "int4 group=64+int8")
    assert without_weights("lab") == ("lab", "") and without_weights(tmp_path) == (tmp_path, "")
    assert without_weights("/at/home@work/model@int8") == ("/at/home@work/model", "int8")
    assert with_weights("lab@int8", "int4") == "lab@int8+int4" and with_weights("lab", " ") == "lab"
    odd = tmp_path / "a@int8"
    odd.mkdir()
    assert without_weights(str(odd)) == (str(odd), ""), "a folder may be called so"
    assert find_model("lab@ int4  group=32 + int8 include_lm_head=false").name == "lab@int4 group=32+int8", (
        "as little as has to be said"
    )
    assert find_model("lab@int4 group=64").name == "lab@int4"
    for name, why in (
        ("lab@int5", "no weights is called"),
        ("lab@int4 group=5", "one of"),
        ("lab@int4 64", "knob=value"),
    ):
        with pytest.raises(LoadError, match=why):
            find_model(name)


def test_a_model_of_another_is_real_and_is_told() -> None:
    plain, made = load(SMALL), load(SMALL, weights="int8")
    weights = [x for layer in made.decoder.layers for x in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    assert all(isinstance(x, Matrix) for x in weights)
    assert made.decoder.head is made.decoder.embed and torch.equal(made.decoder.embed, plain.decoder.embed)
    assert made.name == made.spec.name == f"{SMALL}@int8" and made.reference.endswith(f"{SMALL}@int8")
    marks = {
        load(SMALL, weights=x).fingerprint
        for x in ("", "int8", "int8 include_lm_head=true", "int4", "int4+int8")
    }
    assert len(marks) == 5, "each is another model"
    assert load(f"{SMALL}@int8").fingerprint == made.fingerprint
    held = sum(x.nbytes for x in weights)
    norms = (2 * made.spec.n_layers + 1) * made.spec.d_model * 4
    assert made.spec.weight_bytes(4) == held + made.decoder.embed.nbytes + norms
    assert plain.spec.weight_bytes(4) == plain.spec.params * 4
    both = load(SMALL, weights="int8 include_lm_head=true")
    assert both.decoder.head is both.decoder.unembedding and isinstance(both.decoder.head, Matrix)
    assert both.spec.weight_bytes(4) == held + both.decoder.head.nbytes + both.decoder.embed.nbytes + norms
    again = spec_of(made.spec.record())
    assert again.bits == made.spec.bits and again.weights == "int8"


def test_a_run_on_changed_weights_says_so_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--model", SMALL, "--weights", "int4", "--prompt", "A dog and a", "--max-new-tokens", "2"]
    why = "the weights are changed (int4)"
    assert main(words) == 0 and f"exact for settings (because: {why})" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["exactness"], found["causes"]) == ("exact_for_settings", [why])
    model = found["models"]["target"]
    assert (model["name"], model["weights"], model["adapter"]) == (f"{SMALL}@int4", "int4", "") and model[
        "fingerprint"
    ]


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The draft is the target's own weights in 4 bits; the text equals the target's own."""
    out = tmp_path / "run.dstrace"
    words = [
        "run",
        "--model",
        SMALL,
        "--draft",
        SMALL,
        "--draft-weights",
        "int4 group=32",
        "--drafter",
        "draft_model",
    ]
    assert main([*words, "--prompt", "A dog and a", "--max-new-tokens", "24", "--trace", str(out)]) == 0
    text = capsys.readouterr().out
    trace = open_trace(out)
    assert trace.header.lanes["draft"]["weights"] == "int4 group=32" and "weights" not in trace.header.model
    summary = summarise(trace)
    assert summary.exactness == "lossless" and summary.drafted > summary.accepted > 0
    alone = run(load(SMALL), Method(), "A dog and a", max_new_tokens=24)
    assert text.startswith(alone.text)
    fork = tmp_path / "fork.dstrace"
    assert (
        main(["trace", "fork", str(out), "--step", "2", "--trace", str(fork), "--max-new-tokens", "12"]) == 0
    )
    assert open_trace(fork).header.lanes["draft"]["name"] == f"{SMALL}@int4 group=32"
    capsys.readouterr()
    assert main(["run", "--model", SMALL, "--weights", "int4 group=3", "--prompt", "x"]) == 2
    assert re.fullmatch(r"lab-draft cannot be made so: .*choose one of.*\n", capsys.readouterr().err)
