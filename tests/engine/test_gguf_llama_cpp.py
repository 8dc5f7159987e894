"""GGUF files of llama.cpp's own quantiser, beside llama.cpp's own reading of them."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import toys
from gguf import GGMLQuantizationType as Kind
from gguf_files import write_decoder

from decodescope.engine.kernels.choice import kernels_set_to
from decodescope.engine.model.checkpoint.gguf.header import read_header
from decodescope.engine.model.checkpoint.tokenizer import _byte_letters
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.gguf_matrix import GgufMatrix
from decodescope.engine.model.layers.matrix import unpack
from decodescope.engine.session.load import Model, load

pytestmark = pytest.mark.nightly

# name of a mixture of types in llama.cpp -> types that a width of 256 gets, at least
MIXTURES = {
    "Q4_0": {"Q4_0"},
    "Q4_1": {"Q4_1"},
    "Q5_0": {"Q5_0"},
    "Q5_1": {"Q5_1"},
    "Q8_0": {"Q8_0"},
    "Q2_K": {"Q2_K", "Q3_K"},
    "Q3_K_M": {"Q3_K", "Q4_K"},
    "Q4_K_M": {"Q4_K", "Q6_K"},
    "Q4_K_S": {"Q4_K"},
    "Q5_K_M": {"Q5_K", "Q6_K"},
    "Q6_K": {"Q6_K"},
    "IQ4_NL": {"IQ4_NL"},
    "IQ4_XS": {"IQ4_XS"},
    "IQ3_S": {"IQ3_S"},
    "TQ1_0": {"TQ1_0"},
    "TQ2_0": {"TQ2_0"},
}
ROUNDED = (
    0.15  # the same where llama.cpp rounds what a matrix multiplies to 8 bits, as a part of the deviation
)
TERNARY = (
    "TQ1_0",
    "TQ2_0",
)  # random weights are far from -1, 0 and 1: what is left is noise, whose rounding is large
TEXT = [3, 1, 41, 5, 92, 65, 35, 89, 79, 32, 38, 46]


@pytest.fixture(scope="module")
def library() -> Any:
    """llama.cpp."""
    return pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy in float16 whose rows are whole blocks of every type."""
    spec = toys.toy_spec(
        heads=(), vocab=258, n_layers=4, n_heads=4, n_kv_heads=2, head_dim=64, d_model=256, d_ff=512,
        rope=toys.SPEC.rope.__class__(dim=64),
    )  # fmt: skip
    words = {
        "general__file_type": 1,
        "tokenizer__ggml__model": "gpt2",
        "tokenizer__ggml__pre": "gpt-2",
        "tokenizer__ggml__tokens": [*_byte_letters(), "ab", "<end>"],
        "tokenizer__ggml__token_type": [1] * 257 + [3],
        "tokenizer__ggml__merges": ["a b"],
        "tokenizer__ggml__eos_token_id": 257,
    }
    path = tmp_path_factory.mktemp("models") / "toy.F16.gguf"
    return write_decoder(path, toys.decoder(spec, toys.LIVELY), Kind.F16, **words)


def quantised(library: Any, original: Path, name: str, folder: Path) -> Path:
    """The file that llama.cpp makes of another."""
    path = folder / f"toy.{name}.gguf"
    settings = library.llama_model_quantize_default_params()
    settings.ftype, settings.nthread = getattr(library, f"LLAMA_FTYPE_MOSTLY_{name}"), 1
    failed = library.llama_model_quantize(os.fsencode(original), os.fsencode(path), ctypes.byref(settings))
    assert not failed, f"llama.cpp makes no {name}"
    return path


def prompt_logits(model: Model) -> torch.Tensor:
    """float32 [T, V] of the text."""
    with torch.inference_mode():
        return model.decoder.forward(Feed.causal_chain(TEXT, 0), None)[0]


@pytest.mark.parametrize("name", MIXTURES)
def test_a_file_of_llama_cpp_has_its_numbers_and_nearly_its_logits(
    name: str, library: Any, original: Path, tmp_path: Path
) -> None:
    path = quantised(library, original, name, tmp_path)
    types = {x.type for x in read_header(path).tensors.values()}
    assert types >= MIXTURES[name], "the test needs these types"
    with kernels_set_to("rows"):
        packed, plain = (load(path, "float32", "cpu", keep_packed=x) for x in (True, False))
        ours, dense = prompt_logits(packed), prompt_logits(plain)
    assert torch.equal(ours, dense)
    for one in gguf.GGUFReader(path).tensors:
        if one.name.endswith("ffn_down.weight"):
            layer = packed.decoder.layers[int(one.name.split(".")[1])]
            due = torch.from_numpy(np.array(gguf.quants.dequantize(one.data, one.tensor_type)))
            assert torch.equal(unpack(layer.down), due)
    theirs = library.Llama(str(path), n_ctx=64, n_threads=1, logits_all=True, verbose=False)
    theirs.eval(TEXT)
    due = torch.from_numpy(np.array(theirs.scores[: len(TEXT)]))
    if name not in TERNARY:
        assert float((ours - due).pow(2).mean().sqrt()) < ROUNDED * float(due.std())


def test_the_numbers_of_float16_are_those_of_llama_cpp(library: Any, original: Path) -> None:
    """Nothing is rounded there, so all of a pass is the same but for the order of sums."""
    ours = prompt_logits(load(original, "float32", "cpu"))
    theirs = library.Llama(str(original), n_ctx=64, n_threads=1, logits_all=True, verbose=False)
    theirs.eval(TEXT)
    due = torch.from_numpy(np.array(theirs.scores[: len(TEXT)]))
    assert float((ours - due).abs().max()) < 0.02 * float(due.abs().max())


def test_matrices_of_k_types_stay_packed(library: Any, original: Path, tmp_path: Path) -> None:
    path = quantised(library, original, "Q4_K_M", tmp_path)
    with kernels_set_to("rows"):
        layers = load(path, "bfloat16", "cpu").decoder.layers
    assert all(isinstance(getattr(x, y), GgufMatrix) for x in layers for y in ("out", "gate_up", "down"))
