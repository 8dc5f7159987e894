"""benchmarks/large.py runs on a CPU as it would on a GPU, and says so if there is no GPU."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from decodescope.engine.bench.models import random_decoder_of

SCRIPTS = Path(__file__).resolve().parents[2] / "benchmarks"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("large")


def test_shapes_are_those_of_their_names(script: ModuleType) -> None:
    """Llama 3.2 1B has 1.24 billion parameters, Llama 3.1 8B has 8.03 billion.

    Heads are as wide as the rotation, and the draft has the 8B model's vocabulary.
    """
    sizes = {name: spec.params / 1e9 for name, spec in script.SHAPES.items()}
    assert sizes["1b"] == pytest.approx(1.236, abs=0.001) and sizes["8b"] == pytest.approx(8.030, abs=0.001)
    assert sizes["draft"] < 0.1 * sizes["1b"] and script.SHAPES["draft"].vocab == script.SHAPES["8b"].vocab
    assert all(spec.rope.dim == spec.head_dim for spec in script.SHAPES.values())


def test_random_weights_have_their_shape_and_are_the_same_again(script: ModuleType) -> None:
    spec = script.SHAPES["tiny"]
    one, again = (random_decoder_of(spec, torch.float32) for _ in range(2))
    matrices = [x for layer in one.layers for x in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    assert (
        sum(x.numel() for x in (*matrices, one.embed)) + (2 * spec.n_layers + 1) * spec.d_model == spec.params
    )
    assert one.head is one.embed and torch.equal(one.layers[1].down, again.layers[1].down)


@pytest.mark.nightly
def test_rows_and_steps_have_their_figures(script: ModuleType) -> None:
    lines = script.passes("tiny", CPU, 2).splitlines()
    rows = [line.split() for line in lines[1:5]]
    assert [int(row[0]) for row in rows] == [1, 5, 16, 64] and rows[0][2] == "1.00"
    assert all(float(row[1]) > 0 and row[4].endswith("%") for row in rows) and "GB/s" in lines[-1]
    steps = [line.split() for line in script.drafted("tiny", CPU).splitlines()[1:]]
    assert [row[:2] for row in steps] == [
        [kind, level] for kind in ("none", "draft_model") for level in ("summary", "decisions")
    ]


def test_without_a_gpu_it_says_so(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["large.py", "passes", "--device", "cuda"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as left:
        script.main()
    assert left.value.code == 2 and capsys.readouterr().err.startswith(
        "No CUDA device is here: take --device cpu"
    )
