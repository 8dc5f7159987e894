"""GGUF files are models: all families, all types, hostile files, names, and packed products."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf_files import convert_model, random_blocks, write_gguf
from sizes import sizes
from torch import Tensor

from decodescope.app.runs.model_pool import ModelPool
from decodescope.engine import run
from decodescope.engine.bench.clock.speed import Reference
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.cost.passes import spec_of
from decodescope.engine.kernels.choice import kernels_set_to
from decodescope.engine.kernels.formats import FORMATS
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.gguf import source
from decodescope.engine.model.checkpoint.gguf.header import read_header
from decodescope.engine.model.checkpoint.tokenizer import _byte_letters
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.gguf_matrix import GgufMatrix, unpack_rows
from decodescope.engine.model.layers.matrix import linear
from decodescope.engine.session import load as loading
from decodescope.engine.session.load import Model, describe, find_model, fingerprint, load
from decodescope.engine.training.target import DecoderTarget, read_states

TINY = dict(
    vocab_size=96,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
    initializer_range=0.25,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=1000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
YARN = dict(
    rope_type="yarn", rope_theta=50.0, factor=4.0, original_max_position_embeddings=128, beta_fast=4.0
)
# name -> architecture of the file, class in transformers, and what its config has
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", "Llama", dict(rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    "llama-tied": ("llama", "Llama", dict(tie_word_embeddings=True, num_key_value_heads=1)),
    "llama-bias": ("llama", "Llama", dict(attention_bias=True, mlp_bias=True, head_dim=32)),
    "llama-3.1": ("llama", "Llama", dict(rope_parameters=LLAMA3)),
    "llama-3.1-as-published": (
        "llama",
        "Llama",
        dict(
            rope_parameters={**LLAMA3, "rope_theta": 5e5, "original_max_position_embeddings": 8192},
            head_dim=64,
        ),
    ),
    "llama-linear": (
        "llama",
        "Llama",
        dict(rope_parameters=dict(rope_type="linear", rope_theta=500.0, factor=4.0)),
    ),
    "mistral": ("llama", "Mistral", dict(sliding_window=7)),
    "qwen2": ("qwen2", "Qwen2", dict(tie_word_embeddings=True)),
    "qwen2-yarn": ("qwen2", "Qwen2", dict(rope_parameters=YARN)),
    "qwen3": ("qwen3", "Qwen3", dict(head_dim=32)),
    "smollm3": ("smollm3", "SmolLM3", dict(num_hidden_layers=4, tie_word_embeddings=True)),
    "phi3": (
        "phi3",
        "Phi3",
        dict(
            sliding_window=9,
            rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5),
        ),
    ),
    "phi3-longrope": (
        "phi3",
        "Phi3",
        dict(
            rope_parameters=dict(
                rope_type="longrope",
                rope_theta=500.0,
                partial_rotary_factor=0.5,
                short_factor=[1.0, 1.25, 1.5, 4.0],
                long_factor=[1.0, 2.5, 9.0, 30.0],
            ),
            original_max_position_embeddings=128,
        ),
    ),
    "gemma2": (
        "gemma2",
        "Gemma2",
        dict(
            num_hidden_layers=4,
            head_dim=16,
            sliding_window=9,
            query_pre_attn_scalar=16,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=4.0,
        ),
    ),
    "gemma3": (
        "gemma3",
        "Gemma3Text",
        dict(
            num_hidden_layers=7,
            head_dim=16,
            sliding_window=9,
            query_pre_attn_scalar=16,
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=500.0, factor=4.0),
                sliding_attention=dict(rope_type="default", rope_theta=10000.0),
            ),
        ),
    ),
}
# architectures that transformers reads from a file as llama.cpp does, with the class that it then makes
THEIRS = ("llama", "llama-tied", "llama-bias", "qwen2", "qwen3", "gemma2", "phi3")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of the test's own: what is derived from its files lies there."""
    monkeypatch.setattr(source, "data_folder", lambda: tmp_path / "data")
    source._derive_folder.cache_clear()
    return tmp_path / "data" / "gguf"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small lose more time waiting for a second thread than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(before)


def transformers_model(case: str, **changes: Any) -> Any:
    """A seeded random model of transformers, with weights that are large enough for uneven attention."""
    import transformers

    _, family, more = CASES[case]
    torch.manual_seed(7)
    config = getattr(transformers, f"{family}Config")(**{**TINY, **more, **changes})
    with torch.inference_mode(False):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                weight.add_(torch.randn_like(weight) * 0.2)
        if "gemma" in config.model_type:
            model.get_input_embeddings().weight.mul_(0.3)
    return model


def toy(
    path: Path, case: str = "llama", kind: Kind = Kind.F32, embedding: Kind | None = None, **more: Any
) -> Path:
    """A file of a case; more: metadata."""
    architecture = CASES[case][0]
    said, tensors = convert_model(transformers_model(case), architecture)
    return write_gguf(path, architecture, said, tensors, kind, embedding, **more)


def logits(model: Model, tokens: list[int]) -> Tensor:
    """Ours, [T, V]."""
    return model.decoder.forward(Feed.causal_chain(tokens, 0), None)[0]


def assert_same_decoding(ours: Model, theirs: Any) -> None:
    """Logits of a text and 40 greedy tokens are those of a model of transformers."""
    text = torch.randint(0, 96, (24,), generator=torch.Generator().manual_seed(3)).tolist()
    due = theirs(torch.tensor([text]), use_cache=False).logits[0]
    assert due.std(0).mean() > 0.1, "the guard: places must differ for the comparison to mean anything"
    torch.testing.assert_close(logits(ours, text), due, atol=2e-4, rtol=2e-4)
    tokens = text[:9]
    for _ in range(40):
        tokens.append(int(logits(ours, tokens)[-1].argmax()))
    said = theirs(torch.tensor([tokens]), use_cache=False).logits[0].argmax(-1)[8:-1].tolist()
    assert tokens[9:] == said and len(set(said)) > 1


@pytest.mark.parametrize("case", CASES)
def test_a_family_decodes_as_in_transformers(case: str, tmp_path: Path) -> None:
    theirs = transformers_model(case)
    ours = load(toy(tmp_path / "toy.gguf", case), "float32", "cpu")
    assert ours.spec.family == theirs.config.model_type
    assert_same_decoding(ours, theirs)
    assert [x for x in ours.remarks if "not read" in x] == []


@pytest.mark.parametrize("case", THEIRS)
def test_a_file_is_read_as_transformers_reads_it(case: str, tmp_path: Path) -> None:
    """transformers makes the config and the weights of the same quantised file; ours has these, and decodes as they do."""
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path = toy(tmp_path / "toy.gguf", case, Kind.Q8_0, tokenizer__ggml__eos_token_id=5)
    # it reads neither windows nor a partial rotation of phi3, and no bias of any model
    more = {x: y for x, y in CASES[case][2].items() if x in ("sliding_window", "attention_bias", "mlp_bias")}
    more |= {**CASES[case][2], "pad_token_id": None} if case == "phi3" else {}
    more |= {"query_pre_attn_scalar": 16} if case == "gemma2" else {}
    more |= {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0} if case == "gemma2" else {}
    more |= {"head_dim": 32} if case == "qwen3" else {}
    config = load_gguf_checkpoint(str(path))["config"] | more
    kind = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    with torch.inference_mode(False):
        theirs = transformers.AutoModelForCausalLM.from_config(kind, attn_implementation="eager").eval()
        weights = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=theirs)["tensors"]
        left = theirs.load_state_dict(weights, strict=False)
    assert not left.unexpected_keys and set(left.missing_keys) <= {"lm_head.weight"}
    theirs.tie_weights()
    assert_same_decoding(load(path, "float32", "cpu", keep_packed=False), theirs)


def test_what_a_file_leaves_out_is_llama_cpps_default(tmp_path: Path) -> None:
    """Gemma's largest models divide scores by another root, and the window's layers by pattern; a file says neither."""
    path = toy(tmp_path / "toy.gguf", "gemma3")
    spec = describe(find_model(path).folder, "toy")
    assert spec.windows == (9, 9, 9, 9, 9, None, 9) and spec.query_dim == 16
    said, tensors = convert_model(transformers_model("gemma2"), "gemma2")
    said |= dict.fromkeys(("attention.key_length", "attention.value_length", "rope.dimension_count"), 32)
    said["block_count"] = 46
    spec = describe(find_model(write_gguf(tmp_path / "wide.gguf", "gemma2", said, tensors)).folder, "wide")
    assert spec.query_dim == 16 and spec.head_dim == 32


WRITTEN = (Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1)


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda x: x.name)
def test_a_type_that_gguf_writes_is_read_exactly(kind: Kind, tmp_path: Path) -> None:
    path = toy(tmp_path / f"toy.{kind.name}.gguf", "llama-tied", kind)
    ours = load(path, "float32", "cpu", keep_packed=False)
    theirs = {x.name: x for x in gguf.GGUFReader(path).tensors}
    one = theirs["blk.0.ffn_down.weight"]
    assert torch.equal(
        ours.decoder.layers[0].down,
        torch.from_numpy(np.array(gguf.quants.dequantize(one.data, one.tensor_type))),
    )
    assert ours.spec.stored_as == kind.name and ours.spec.bits == ()
    if kind.name in FORMATS:
        assert any(f"toy, dequantised from {kind.name}" in x for x in ours.remarks)


ONLY_READ = [
    x for x in Kind if x.name[:2] in ("IQ", "TQ", "MX", "NV") or (x.name.endswith("_K") and x.name != "Q8_K")
]


@pytest.mark.parametrize("kind", ONLY_READ, ids=lambda x: x.name)
def test_a_type_that_gguf_only_reads_is_read_exactly(kind: Kind, tmp_path: Path) -> None:
    """A model of width 256 whose matrix `down` holds random bytes of the type, packed where the kernels know it."""
    said, tensors, raw = wide_toy(kind)
    path = tmp_path / "toy.gguf"
    write_mixed(path, said, tensors, {"blk.0.ffn_down.weight": raw}, kind)
    due = torch.from_numpy(gguf.quants.dequantize(raw, kind))
    for packed in (True, False):
        down = load(path, "float32", "cpu", keep_packed=packed).decoder.layers[0].down
        assert isinstance(down, GgufMatrix) == (packed and kind.name in FORMATS)
        assert torch.equal(down.dense_weight() if isinstance(down, GgufMatrix) else down, due)


def wide_toy(kind: Kind) -> tuple[dict[str, Any], dict[str, Tensor], np.ndarray[Any, Any]]:
    """Metadata and tensors of a Llama of one layer of width 256, and random bytes for its matrix down."""
    sizes = {"block_count": 1, "embedding_length": 64, "feed_forward_length": 256, "context_length": 64}
    heads = {"attention.head_count": 2, "attention.layer_norm_rms_epsilon": 1e-5}
    draw = torch.Generator().manual_seed(1)
    shapes = {"attn_q": (64, 64), "attn_k": (64, 64), "attn_v": (64, 64), "attn_output": (64, 64)}
    shapes |= {"ffn_gate": (256, 64), "ffn_up": (256, 64), "attn_norm": (64,), "ffn_norm": (64,)}
    tensors = {f"blk.0.{x}.weight": torch.randn(y, generator=draw) / 8 for x, y in shapes.items()}
    tensors |= {
        "token_embd.weight": torch.randn(40, 64, generator=draw),
        "output_norm.weight": torch.ones(64),
    }
    return sizes | heads, tensors, random_blocks(kind, 64, 256)


def write_mixed(
    path: Path,
    said: dict[str, Any],
    tensors: dict[str, Tensor],
    raw: dict[str, np.ndarray[Any, Any]],
    kind: Kind,
) -> None:
    """Write a file of float32 tensors, and of rows of bytes of another type."""
    from gguf_files import write_metadata

    writer = gguf.GGUFWriter(path, "llama")
    write_metadata(writer, {f"llama.{key}": x for key, x in said.items()})
    for name, x in tensors.items():
        writer.add_tensor(name, x.numpy())
    for name, rows in raw.items():
        writer.add_tensor(name, rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_dequantising_a_matrix_takes_little_memory() -> None:
    """Its float32 numbers would take 128 MiB."""
    data = np.ones((4096, 8192 // 32 * 34), np.uint8)
    out = torch.zeros(4096, 8192, dtype=torch.bfloat16)
    tracemalloc.start()
    unpack_rows(data, "Q8_0", out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 16 << 20 < peak < 64 << 20


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_packed_matrices_are_multiplied_as_they_are_stored(dtype: str, tmp_path: Path) -> None:
    path = toy(tmp_path / "toy.gguf", "llama-tied", Kind.Q4_1, Kind.Q8_0)
    with kernels_set_to("rows"):
        ours = load(path, dtype, "cpu")
        dense = load(path, "float32", "cpu", keep_packed=False)
        layers = zip(ours.decoder.layers, dense.decoder.layers, strict=True)
        pairs = [(getattr(a, x), getattr(b, x)) for a, b in layers for x in ("qkv", "out", "gate_up", "down")]
        pairs.append((ours.decoder.head, dense.decoder.head))
        for one, due in pairs:
            assert isinstance(one, GgufMatrix) and one.nbytes < due.nbytes / 3
            x = torch.randn(5, due.shape[1], generator=torch.Generator().manual_seed(1)).to(
                ours.decoder.dtype
            )
            exact = x.double() @ due.double().T
            bound = {4: 2e-6, 2: 5e-3}[x.element_size()]
            assert (linear(x, one).double() - exact).abs().max() < bound * exact.abs().max()
            assert torch.equal(one.rows_from(8).dense_weight(), one.dense_weight()[8:])
            assert torch.equal(one.copy_to(dtype=torch.float32).dense_weight(), due)
        assert type(ours.decoder.embed) is Tensor and ours.spec.bits[0] == (5.0,) * 4
        assert ours.spec.bits[-1] == (8.5,) and ours.fingerprint == dense.fingerprint
        assert any("multiplied as it is stored in Q4_1 and Q8_0" in x for x in ours.remarks)
    with kernels_set_to("torch"):
        plain = load(path, dtype, "cpu")
    assert not any(isinstance(x.qkv, GgufMatrix) for x in plain.decoder.layers)
    assert any("toy, dequantised from Q4_1 (embedding Q8_0) to" in x for x in plain.remarks)


def test_a_head_learns_from_packed_matrices_as_from_dequantised_ones(tmp_path: Path) -> None:
    path = toy(tmp_path / "toy.gguf", "llama-tied", Kind.Q4_1, Kind.Q8_0)
    ids = torch.randint(90, (2, 7), generator=torch.Generator().manual_seed(0))
    with kernels_set_to("rows"), torch.inference_mode(False), torch.no_grad():
        packed, dense = (
            DecoderTarget(load(path, "float32", "cpu", keep_packed=x).decoder) for x in (True, False)
        )
        assert isinstance(packed.decoder.head, GgufMatrix) and not isinstance(dense.decoder.head, GgufMatrix)
        states = [read_states(x, ids, 1) for x in (packed, dense)]
    for name in ("embedded", "early", "feature", "fused"):
        assert torch.allclose(getattr(states[0], name), getattr(states[1], name), atol=1e-3)
    with torch.inference_mode(False), torch.enable_grad():
        feature = states[0].feature.requires_grad_(True)
        logits = packed.unembed(feature)
        logits.logsumexp(-1).sum().backward()
    assert torch.allclose(logits, dense.unembed(states[1].feature), atol=1e-2)
    assert feature.grad is not None and feature.grad.abs().sum() > 0


def test_matrices_of_two_types_that_are_stacked_are_dequantised(tmp_path: Path) -> None:
    said, tensors, _ = wide_toy(Kind.Q4_0)
    names = [f"blk.0.attn_{x}.weight" for x in ("q", "k", "v", "output")]
    raw = {x: gguf.quants.quantize(tensors.pop(x).numpy(), Kind.Q8_0) for x in names[1:]}
    tensors["blk.0.ffn_down.weight"] = torch.randn(64, 256)
    write_mixed(tmp_path / "toy.gguf", said, tensors, raw, Kind.Q8_0)
    with kernels_set_to("rows"):
        layer = load(tmp_path / "toy.gguf", "float32", "cpu").decoder.layers[0]
    assert type(layer.qkv) is Tensor and isinstance(layer.out, GgufMatrix)


def test_a_type_that_gguf_does_not_read_is_refused(tmp_path: Path) -> None:
    said, tensors, _ = wide_toy(Kind.Q8_0)
    raw = {"blk.0.ffn_down.weight": np.zeros((64, 256), np.int32)}
    write_mixed(tmp_path / "toy.gguf", said, tensors, raw, Kind.I32)
    with pytest.raises(LoadError, match="stores tensors as I32, which cannot be read; convert the model"):
        load(tmp_path / "toy.gguf", device="cpu")


def test_a_number_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    for packed in (True, False):
        said, tensors, raw = wide_toy(Kind.Q8_0)
        raw[3, :2] = np.array([np.inf], np.float16).view(np.uint8)
        write_mixed(tmp_path / "toy.gguf", said, tensors, {"blk.0.ffn_down.weight": raw}, Kind.Q8_0)
        with pytest.raises(LoadError, match=r"down_proj.weight holds numbers that are not finite"):
            load(tmp_path / "toy.gguf", "float32", "cpu", keep_packed=packed)
    raw[3, :2] = np.array([6e4], np.float16).view(np.uint8)  # times 127 it is too large for float16
    raw[3, 2] = 127
    write_mixed(tmp_path / "toy.gguf", said, tensors, {"blk.0.ffn_down.weight": raw}, Kind.Q8_0)
    load(tmp_path / "toy.gguf", "float32", "cpu")
    with pytest.raises(LoadError, match="not finite as float16"):
        load(tmp_path / "toy.gguf", "float16", "cpu")


# ---- names, and the derived folder


def test_a_model_is_named_by_its_file_its_folder_and_its_reference(tmp_path: Path, home: Path) -> None:
    (tmp_path / "models").mkdir()
    path = toy(tmp_path / "models" / "Toy-1M.Q8_0.gguf", "llama", Kind.Q8_0, general__name="Another 2M")
    (tmp_path / "models" / "mmproj-Toy.gguf").write_bytes(b"what sees pictures")
    for name in (path, str(path), path.parent, f"{path.parent}/"):
        asked = find_model(name)
        assert asked.name == "Toy-1M.Q8_0" and asked.folder.parent == home
    model = load(path, "float32", "cpu")
    assert model.name == model.spec.name == "Toy-1M.Q8_0" and model.reference == str(path)
    assert model.spec.record()["stored_as"] == "Q8_0"
    assert find_model(f"{path}@int4 group=32") == (
        "Toy-1M.Q8_0@int4 group=32",
        model.path,
        "",
        "int4 group=32",
    )
    assert find_model(model.path).name == model.name, "the derived folder is the same model"
    shutil.copy(path, path.with_name("two.gguf"))
    with pytest.raises(LoadError, match=r"holds 2 GGUF models \(Toy-1M.Q8_0.gguf, two.gguf\); name one"):
        find_model(path.parent)
    odd = path.rename(path.with_name("a+b@int4.gguf"))
    assert find_model(odd).name == "a+b@int4"


def test_what_is_derived_is_written_once(tmp_path: Path, home: Path) -> None:
    path = toy(tmp_path / "toy.gguf", tokenizer__ggml__eos_token_id=5, tokenizer__ggml__eot_token_id=7)
    folder = find_model(path).folder
    written = {x.name: (x.read_bytes(), x.stat().st_mtime_ns) for x in folder.iterdir()}
    assert set(written) == {"config.json", "generation_config.json", "gguf.json"}
    assert json.loads(written["generation_config.json"][0])["eos_token_id"] == [5, 7]
    assert load(path, device="cpu").stop_tokens == [5, 7]
    source._derive_folder.cache_clear()
    assert find_model(path).folder == folder
    assert {x.name: (x.read_bytes(), x.stat().st_mtime_ns) for x in folder.iterdir()} == written
    for name in written:  # what is damaged or of other code is written again
        (folder / name).write_text("{")
    source._derive_folder.cache_clear()
    assert find_model(path).folder == folder
    assert {x.name: x.read_bytes() for x in folder.iterdir()} == {x: y[0] for x, y in written.items()}


def test_a_copy_is_the_same_model_and_other_numbers_are_another(tmp_path: Path) -> None:
    path = toy(tmp_path / "toy.gguf")
    one = load(path, device="cpu")
    copy = shutil.copy(path, tmp_path / "copy.gguf")
    two = load(copy, device="cpu")
    assert (two.fingerprint, two.path) == (one.fingerprint, one.path) and two.name == "copy"
    assert load(path, device="cpu").reference == str(path), "the one that was named last"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1  # a number
    (tmp_path / "other.gguf").write_bytes(data)
    assert fingerprint(find_model(tmp_path / "other.gguf").folder) != one.fingerprint
    header = toy(tmp_path / "header.gguf", general__name="other metadata")
    other = find_model(header).folder
    assert other != one.path and fingerprint(other) == one.fingerprint, "only the tokenizer could differ"


def test_a_file_that_is_gone_or_has_changed_is_refused(tmp_path: Path) -> None:
    path = toy(tmp_path / "toy.gguf")
    folder = find_model(path).folder
    os.utime(path, (1, 1))
    with pytest.raises(
        LoadError, match=r"toy.gguf, the file of toy, has changed; name the model by this file"
    ):
        load(folder, device="cpu")
    path.unlink()
    with pytest.raises(LoadError, match=r"toy.gguf, the file of toy, is gone; put it back"):
        load(folder, device="cpu")
    with pytest.raises(LoadError):
        load(path, device="cpu")


def test_a_folder_that_claims_to_be_derived_reads_no_other_file(tmp_path: Path) -> None:
    folder = find_model(toy(tmp_path / "toy.gguf")).folder
    other = Path(shutil.copytree(folder, tmp_path / "mine"))
    with pytest.raises(LoadError, match=r"no model\.safetensors"):
        load(other, device="cpu")


def test_a_model_in_parts_is_one_model(tmp_path: Path) -> None:
    theirs = transformers_model("llama")
    said, tensors = convert_model(theirs, "llama")
    names = list(tensors)
    for i, some in enumerate((names[:5], names[5:9], names[9:])):
        split = {"split__no": i, "split__count": 3, "split__tensors__count": len(names)}
        path = tmp_path / f"toy-{i + 1:05}-of-00003.gguf"
        write_gguf(path, "llama", said if i == 0 else {}, {x: tensors[x] for x in some}, **split)
    for name in (path, tmp_path):
        model = load(name, "float32", "cpu")
        assert model.name == "toy" and model.reference.endswith("toy-00001-of-00003.gguf")
        assert_same_decoding(model, theirs)
    path.rename(tmp_path / "aside")
    with pytest.raises(LoadError, match=r"toy-00003-of-00003.gguf cannot be read"):
        load(tmp_path / "toy-00001-of-00003.gguf", device="cpu")
    shutil.copy(tmp_path / "toy-00002-of-00003.gguf", path)
    with pytest.raises(LoadError, match=r"is not part 3 of 3 by its own metadata"):
        load(tmp_path / "toy-00001-of-00003.gguf", device="cpu")


def test_a_file_of_the_hub_is_named_behind_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked: list[tuple[str, str]] = []
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    toy(snapshot / "toy.Q8_0.gguf", kind=Kind.Q8_0)

    def download(name: str, file: str) -> str:
        asked.append((name, file))
        return str(snapshot / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **_: str(snapshot))
    listed = ["README.md", "toy.Q8_0.gguf"]
    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", lambda self, name: listed)
    assert load("some-one/toy-GGUF:toy.Q8_0.gguf", device="cpu").name == "toy.Q8_0"
    assert load("some-one/toy-GGUF", device="cpu").name == "toy.Q8_0", "the only one of its repository"
    assert asked == [("some-one/toy-GGUF", "toy.Q8_0.gguf")] * 2
    listed.append("toy.Q4_0.gguf")
    with pytest.raises(LoadError, match=r"holds 2 GGUF models; .* some-one/toy-GGUF:toy.Q4_0.gguf or"):
        load("some-one/toy-GGUF", device="cpu")
    with pytest.raises(LoadError):
        load("some-one/toy-GGUF:../toy.gguf", device="cpu")


def test_a_list_describes_a_file_by_its_header(tmp_path: Path, home: Path) -> None:
    path = toy(tmp_path / "toy.gguf", "gemma2", Kind.Q5_0, Kind.Q8_0)
    spec = describe(path, "toy")
    assert not home.exists(), "nothing is written for a list"
    assert spec == describe(find_model(path).folder, "toy")
    assert spec.stored_as == "Q5_0 (embedding Q8_0)"


def test_a_run_decodes_with_a_file_as_target_and_draft(tmp_path: Path) -> None:
    path = toy(tmp_path / "toy.gguf", "llama-tied", Kind.Q8_0)
    target = load(path, "float32", "cpu")
    plain = run(target, None, [1, 2, 3], max_new_tokens=12)
    drafted = run(target, "draft_model", [1, 2, 3], max_new_tokens=12, draft=load(path, "float32", "cpu"))
    assert drafted.tokens == plain.tokens and plain.trace.header.model["stored_as"] == "Q8_0"
    assert plain.trace.header.model["name"] == "toy"


def test_a_comparison_with_transformers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        LoadError, match=r"toy was read from a GGUF file, .*; measure the original checkpoint"
    ):
        Reference(load(toy(tmp_path / "toy.gguf"), device="cpu"), None)


def test_a_file_can_be_transformed(tmp_path: Path) -> None:
    path = toy(tmp_path / "toy.gguf", "llama-tied", Kind.Q8_0)
    made = load(f"{path}@int4 group=32", "float32", "cpu")
    dense = load(path, "float32", "cpu", weights="int4 group=32", keep_packed=False)
    for a, b in zip(made.decoder.layers, dense.decoder.layers, strict=True):
        assert torch.equal(a.down.dense_weight(), b.down.dense_weight())  # type: ignore[attr-defined]
    assert not any("multiplied as it is stored" in x for x in made.remarks)


# ---- what cannot be read


@pytest.mark.parametrize(
    ("case", "said", "match"),
    [
        ("llama", {"expert_count": 8}, "toy is a mixture of experts, which is not supported"),
        ("llama", {"attention.head_count_kv": [2, 1]}, r"gives \[2, 1\] as llama.attention.head_count_kv"),
        ("llama", {"attention.causal": False}, "reads its text both ways"),
        ("llama", {"attention.value_length": 8}, "keys and values of different widths"),
        ("llama", {"rope.scaling.type": "longrope"}, "'longrope' as no other model"),
        ("llama-3.1", {"rope.scaling.type": "yarn"}, r"twice \(rope_freqs.weight and yarn\)"),
        ("llama", {"block_count": 0}, "gives 0 as llama.block_count in its metadata"),
        (
            "llama",
            {"block_count": 3},
            r"lacks model.layers.2.input_layernorm.weight.*; the metadata of its file",
        ),
        ("llama", {"rope.dimension_count": 8}, "rotates 0.5 of each head"),
        ("llama", {"rope.freq_base": float("nan")}, "llama.rope.freq_base"),
        ("llama", {"context_length": 1 << 30}, "max_position_embeddings as 1073741824"),
    ],
)
def test_what_no_family_has_is_refused_in_a_sentence(
    case: str, said: dict[str, Any], match: str, tmp_path: Path
) -> None:
    own, tensors = convert_model(transformers_model(case), "llama")
    path = write_gguf(tmp_path / "toy.gguf", "llama", own | said, tensors)
    with pytest.raises(LoadError, match=match) as error:
        load(path, device="cpu")
    assert "\n" not in str(error.value)


def test_other_architectures_and_rotations_are_refused(tmp_path: Path) -> None:
    own, tensors = convert_model(transformers_model("llama"), "llama")
    with pytest.raises(LoadError, match=r"of the architecture 'mamba', .*; choose one of llama, qwen2"):
        load(write_gguf(tmp_path / "toy.gguf", "mamba", own, tensors), device="cpu")
    for name, numbers, match in (
        (
            "rope_freqs.weight",
            torch.tensor([1.0, 1, 1]),
            "3 numbers as rope_freqs.weight; they must be 8 positive",
        ),
        ("rope_freqs.weight", torch.zeros(8), "8 numbers as rope_freqs.weight; they must be 8 positive"),
        ("rope_freqs.weight", torch.full((8,), torch.nan), "they must be 8 positive ones"),
        (
            "rope_factors_long.weight",
            torch.ones(8),
            "and factors of longrope are rope_factors_long.weight and rope_factors_short.weight",
        ),
        ("blk.0.strange.weight", torch.ones(8), "also holds blk.0.strange.weight, which a llama model"),
    ):
        with pytest.raises(LoadError, match=match):
            load(write_gguf(tmp_path / "toy.gguf", "llama", own, {**tensors, name: numbers}), device="cpu")
    tensors["rope_freqs.weight"] = torch.ones(8)
    assert (
        load(write_gguf(tmp_path / "toy.gguf", "llama", own, tensors), device="cpu").spec.rope.kind
        == "default"
    )


@pytest.mark.parametrize("linear", [1.0, 4.0])
def test_any_factors_of_the_pairs_are_divisors_of_their_frequencies(linear: float, tmp_path: Path) -> None:
    """transformers has them as longrope with one list for all lengths; the factor of `linear` multiplies them."""
    theirs = transformers_model("llama")
    own, tensors = convert_model(theirs, "llama")
    divisors = torch.tensor([1.0, 3, 2, 5, 1, 1, 2, 2])
    with torch.no_grad():
        theirs.model.rotary_emb.inv_freq /= divisors * linear
    said = {"rope.scaling.type": "linear", "rope.scaling.factor": linear} if linear > 1 else {}
    path = write_gguf(tmp_path / "toy.gguf", "llama", own | said, {**tensors, "rope_freqs.weight": divisors})
    ours = load(path, "float32", "cpu")
    assert ours.spec.rope.kind == "longrope" and ours.spec.max_positions == TINY["max_position_embeddings"]
    assert_same_decoding(ours, theirs)


def test_longrope_is_read_up_to_its_original_length(tmp_path: Path) -> None:
    ours = load(toy(tmp_path / "toy.gguf", "phi3-longrope"), "float32", "cpu")
    assert ours.spec.max_positions == 128 and ours.spec.record()["rope"]["factors"] == (1.0, 1.25, 1.5, 4.0)
    recorded = spec_of(json.loads(json.dumps(ours.spec.record())))
    assert recorded.rope == ours.spec.rope, "a trace's header has the factors"
    assert any("other factors (long_factor) above 128 tokens, which are not used" in x for x in ours.remarks)
    with pytest.raises(Refusal, match=r"at most 128 tokens, .*\(original_max_position_embeddings of its"):
        run(ours, None, [1] * 128, max_new_tokens=4)


def test_a_key_that_is_not_read_is_named(tmp_path: Path) -> None:
    own, tensors = convert_model(transformers_model("llama"), "llama")
    path = write_gguf(tmp_path / "toy.gguf", "llama", own | {"logit_scale": 2.0}, tensors)
    assert any(
        "metadata (llama) of toy gives logit_scale = 2.0" in x for x in load(path, device="cpu").remarks
    )


# ---- hostile files


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    data = toy(tmp_path / "toy.gguf", tokenizer__ggml__tokens=["a", "b"]).read_bytes()
    header = read_header(tmp_path / "toy.gguf")
    cut = tmp_path / "cut.gguf"
    for length in [*range(0, 200), *range(200, min(header.starts.values()), 61), len(data) - 40]:
        cut.write_bytes(data[:length])
        with pytest.raises(LoadError):
            read_header(cut)


def test_every_changed_byte_of_a_header_is_a_model_or_a_sentence(tmp_path: Path) -> None:
    """The walk ends at once, and no change makes it raise anything else."""
    path = toy(tmp_path / "toy.gguf", tokenizer__ggml__tokens=["a", "b"], tokenizer__ggml__scores=[0.5, 1.5])
    data = bytearray(path.read_bytes())
    refused, size = 0, min(read_header(path).starts.values())
    draw = np.random.default_rng(0)
    for place in [*range(4, 64), *draw.integers(64, size, 300)]:
        changed = data.copy()
        changed[place] = int(draw.integers(0, 256))
        path.write_bytes(changed)
        begun = time.process_time()
        try:
            describe(path, "toy")
        except LoadError as error:
            refused += 1
            assert "\n" not in str(error)
        assert time.process_time() - begun < 0.5
    assert refused > 50, "the test needs refusals"


def mutated(data: bytes, end: int, draw: np.random.Generator) -> bytes:
    """A file with something wrong before the byte `end`: bytes changed, a number of eight bytes replaced, or a part missing."""
    changed = bytearray(data)
    kind = draw.integers(4)
    at = int(draw.integers(4, end))
    if kind == 0:
        for place in draw.integers(4, end, int(draw.integers(1, 9))):
            changed[place] = int(draw.integers(0, 256))
    elif kind == 1:
        odd = (0, 1, (1 << 64) - 1, 1 << 63, 1 << 32, 1 << 22, len(data), int(draw.integers(1 << 40)))
        changed[at : at + 8] = number(odd[draw.integers(len(odd))])
    elif kind == 2:
        del changed[at:]
    else:
        del changed[at : at + int(draw.integers(1, 40))]
    return bytes(changed)


@sizes("count", usual=64, full=3000)
def test_a_file_with_something_wrong_is_a_model_or_a_sentence(count: int, tmp_path: Path) -> None:
    """Whatever was changed: nothing else is raised, nothing hangs, and no more memory is taken than the file is large."""
    tokens = [*_byte_letters(), "ab", "<end>"]
    own = transformers_model("llama-tied", vocab_size=len(tokens))
    said, tensors = convert_model(own, "llama")
    words = {
        "tokenizer__ggml__model": "gpt2",
        "tokenizer__ggml__pre": "smollm",
        "tokenizer__ggml__tokens": tokens,
        "tokenizer__ggml__token_type": [1] * 257 + [3],
        "tokenizer__ggml__merges": ["a b"],
        "tokenizer__ggml__eos_token_id": 257,
        "tokenizer__chat_template": "{{ messages[0].content }}",
    }
    path = write_gguf(tmp_path / "toy.gguf", "llama", said, tensors, Kind.Q8_0, **words)
    assert load(path, "float32", "cpu").tokenizer is not None
    data, start = path.read_bytes(), min(read_header(path).starts.values())
    draw, refused = np.random.default_rng(1), 0
    for i in range(count):
        path.write_bytes(mutated(data, start, draw))
        os.utime(path, (i, i))
        begun = time.process_time()
        if i % 8 == 0:  # all takes four times as long while memory is traced
            tracemalloc.start()
        try:
            load(path, "float32", "cpu")
        except LoadError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 700
        if i % 8 == 0:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 16 << 20
        assert time.process_time() - begun < 10
    assert count / 4 < refused < count, "the test needs both"


def number(x: int, code: str = "Q") -> bytes:
    return struct.pack(f"<{code}", x)


def text(x: str) -> bytes:
    return number(len(x)) + x.encode()


def entry(key: str, kind: int) -> bytes:
    """A key of metadata and the type of its value."""
    return text(key) + number(kind, "I")


def info(name: str, axes: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    """An entry of the list of tensors."""
    return (
        text(name) + number(len(axes), "I") + b"".join(map(number, axes)) + number(kind, "I") + number(offset)
    )


def head(tensors: int, keys: int) -> bytes:
    return b"GGUF" + number(3, "I") + number(tensors) + number(keys)


WORD, STRING, LIST = 4, 8, 9
HOSTILE = {
    "an array of 2^60": head(0, 1) + entry("a", LIST) + number(WORD, "I") + number(1 << 60),
    "strings of 2^60": head(0, 1) + entry("a", LIST) + number(STRING, "I") + number(1 << 60),
    "a string of 2^63": head(0, 1) + entry("a", STRING) + number(1 << 63),
    "a key of 2^63": head(0, 1) + number(1 << 63),
    "2^60 tensors": head(1 << 60, 0),
    "2^60 keys": head(0, 1 << 60),
    "a list of lists": head(0, 1) + entry("a", LIST) + (number(LIST, "I") + number(1)) * 40,
    "an unknown type": head(0, 1) + entry("a", 99) + number(0),
    "an axis of 2^63": head(1, 0) + info("x", (1 << 63,)),
    "axes that overflow": head(1, 0) + info("x", (1 << 62,) * 4),
    "2^32 axes": head(1, 0) + text("x") + number((1 << 32) - 1, "I"),
    "an empty axis": head(1, 0) + info("x", (0,)),
    "an offset of 2^63": head(1, 0) + info("x", (1,), offset=1 << 63),
    "an odd offset": head(1, 0) + info("x", (1,), offset=3) + bytes(99),
    "a tensor of no known type": head(1, 0) + info("x", (1,), kind=777) + bytes(99),
    "a row that is no whole block": head(1, 0) + info("x", (33,), kind=2) + bytes(99),
    "two tensors in one place": head(2, 0) + info("x", (1,)) + info("y", (1,)) + bytes(99),
    "a tensor twice": head(2, 0) + info("x", (1,)) * 2 + bytes(99),
    "a key twice": head(0, 2) + (entry("a", WORD) + number(1, "I")) * 2,
    "an alignment of 0": head(0, 1) + entry("general.alignment", WORD) + number(0, "I"),
    "version 1": b"GGUF" + number(1, "I") + bytes(20),
    "big endian": b"GGUF" + struct.pack(">I", 3) + bytes(20),
    "no GGUF": b"PK\3\4" + bytes(60),
    "nothing": b"",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_header_is_refused_at_once(what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(HOSTILE[what])
    begun = time.process_time()
    tracemalloc.start()
    with pytest.raises(LoadError) as error:
        find_model(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - begun < 0.5 and peak < 4 << 20
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_a_header_of_zeros_that_fills_its_limit_is_refused(tmp_path: Path) -> None:
    """Lists of empty strings, as many as a file may hold and more, in a file with holes."""
    path = tmp_path / "x.gguf"
    with path.open("wb") as file:
        file.write(head(0, 2) + entry("a", LIST) + number(STRING, "I") + number(1 << 22))
        file.truncate(1 << 30)
    begun = time.process_time()
    with pytest.raises(LoadError, match="architecture 'None'"):
        describe(path, "x")
    assert time.process_time() - begun < 5


def test_the_header_of_a_large_vocabulary_is_read_in_a_moment(tmp_path: Path) -> None:
    own, tensors = convert_model(transformers_model("llama"), "llama")
    tokens = {"tokenizer__ggml__tokens": [f"token{i}" for i in range(130_000)]}
    merges = {"tokenizer__ggml__merges": [f"tok en{i}" for i in range(130_000)]}
    path = write_gguf(tmp_path / "toy.gguf", "llama", own, tensors, **tokens, **merges)
    times = []
    for _ in range(3):
        begun = time.process_time()
        assert len(read_header(path).metadata["tokenizer.ggml.tokens"]) == 130_000
        times.append(time.process_time() - begun)
    assert min(times) < 0.3


def test_loading_checks_the_memory_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = toy(tmp_path / "toy.gguf", "llama-tied", Kind.Q4_0)
    spec = describe(path, "toy")
    monkeypatch.setattr(loading, "free_bytes", lambda device: 2 * spec.params)
    with kernels_set_to("rows"):
        load(path, "float32", "cpu")
        with pytest.raises(LoadError, match=r"toy needs .* GiB as float32"):
            load(path, "float32", "cpu", keep_packed=False)


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_page_offers_the_files_of_its_folder(tmp_path: Path, home: Path) -> None:
    """Those in it and in its folders, by their headers; a link that leads out, and what no family reads, are left out."""
    folder = tmp_path / "models"
    (folder / "inner").mkdir(parents=True)
    paths = [
        toy(folder / "one.Q4_1.gguf", "llama-tied", Kind.Q4_1, Kind.Q8_0),
        toy(folder / "inner" / "two.gguf"),
    ]
    (folder / "broken.gguf").write_bytes(b"GGUF")
    (folder / "out.gguf").symlink_to(toy(tmp_path / "out.gguf"))
    with kernels_set_to("rows"):
        offers = {x.key: x for x in ModelPool("lab", None, folder).offers() if x.source == "folder"}
        assert sorted(offers) == sorted(map(str, paths)) and not home.exists()
        one = offers[str(paths[0])]
        assert one.name == "one.Q4_1" and one.label.endswith(", stored as Q4_1 (embedding Q8_0) (folder)")
        model = load(one.key)
        assert one.size == pytest.approx(model.spec.weight_bytes(2), rel=0.01)
        assert model.spec.name == one.spec.name and home.exists()
