"""load: what it finds, what it reads, and what it refuses with one sentence."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from checkpoints import CONFIG, change, made
from safetensors.torch import load_file, save_file

from decodescope.engine.core.spec import Rope
from decodescope.engine.cost.passes import spec_of
from decodescope.engine.model.checkpoint import weights as reading
from decodescope.engine.model.checkpoint.config import length_remarks, read_rope, rope_table, spec_from_config
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.keys import Config
from decodescope.engine.model.checkpoint.weights import tensor_shapes
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.matrix import unpack
from decodescope.engine.session.load import SHIPPED, find_model, fingerprint, load, shipped_models

# as an attribute of the engine, `load` is the function
loading = importlib.import_module("decodescope.engine.session.load")


def refused(name: str | Path, match: str, **how: Any) -> None:
    """Check that `load` refuses with one sentence."""
    with pytest.raises(LoadError, match=match) as error:
        load(name, device="cpu", **how)
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert ". " not in text.replace(str(name), ""), "one sentence"


# ---- what is read


def test_the_shipped_models_are_listed_without_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "CheckpointTensors", None)
    listed = shipped_models()
    assert {x["name"].partition("+")[0] for x in listed} <= {x.name for x in SHIPPED.iterdir()}
    assert all(x["path"].is_dir() and x["params"] > 100_000 for x in listed)
    short = {"lab-mdm": 256, "lab-digits": 128, "lab-digits-any": 256, "lab-blocks": 1024}
    assert all(x["context"] == short.get(x["path"].name, 2048) for x in listed)


def test_a_shipped_name_wins_over_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "lab-draft")
    monkeypatch.chdir(tmp_path)
    assert find_model("lab-draft") == ("lab-draft", SHIPPED / "lab-draft", "", "")
    assert find_model("./lab-draft")[1].resolve() == tmp_path / "lab-draft"
    assert find_model(Path("lab-draft"))[1].resolve() == tmp_path / "lab-draft"


def test_a_loaded_model_is_complete() -> None:
    model = load("lab-draft", device="cpu")
    assert (model.name, model.path, model.spec.params) == (
        "lab-draft",
        SHIPPED / "lab-draft",
        model.decoder.spec.params,
    )
    assert model.decoder.dtype == torch.float32
    assert model.stop_tokens == [0]
    assert model.tokenizer is not None
    assert model.tokenizer.vocab == model.spec.vocab
    assert model.decoder.head is model.decoder.embed, "tied embeddings are one tensor"
    assert not model.decoder.embed.requires_grad


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("asked", ["float32", "bfloat16", torch.float16, "float64"], ids=str)
def test_weights_are_cast_once(stored: torch.dtype, asked: str | torch.dtype, tmp_path: Path) -> None:
    folder = made(tmp_path / "m", dtype=stored)
    model = load(folder, dtype=asked, device="cpu")
    tensors = load_file(folder / "model.safetensors")
    dtype = getattr(torch, str(asked).removeprefix("torch."))
    parts = [tensors[f"model.layers.1.self_attn.{x}_proj.weight"] for x in "qkv"]
    assert torch.equal(unpack(model.decoder.layers[1].qkv), torch.cat(parts).to(dtype))
    parts = [tensors[f"model.layers.0.mlp.{x}_proj.weight"] for x in ("gate", "up")]
    assert torch.equal(unpack(model.decoder.layers[0].gate_up), torch.cat(parts).to(dtype))
    assert model.decoder.forward(Feed.causal_chain([1, 2], 0), None).isfinite().all()


def test_weights_do_not_lean_on_the_file(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    model = load(folder, device="cpu")
    before = model.decoder.embed.clone()
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-4096, 2)
        file.write(bytes(4096))
    assert torch.equal(model.decoder.embed, before)


def test_stops_are_ids_that_the_model_has(tmp_path: Path) -> None:
    assert load(made(tmp_path / "m"), device="cpu").stop_tokens == [3, 39]


def test_padding_rows_are_never_chosen(tmp_path: Path) -> None:
    folder = made(tmp_path / "m", vocab_size=4160)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / "lab-draft" / name, folder / name)
    model = load(folder, device="cpu")
    assert model.decoder.usable == 4096
    assert model.decoder.forward(Feed.causal_chain([1], 0), None).shape == (1, 1, 4096)


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    whole = made(tmp_path / "whole", tie_word_embeddings=False)
    folder = tmp_path / "parts"
    folder.mkdir()
    shutil.copy(whole / "config.json", folder / "config.json")
    tensors = load_file(whole / "model.safetensors")
    names = sorted(tensors)
    # q, k, v are not contiguous
    files = {n: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, n in enumerate(names)}
    for file in set(files.values()):
        save_file({n: tensors[n] for n in names if files[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    a, b = load(whole, device="cpu").decoder, load(folder, device="cpu").decoder
    assert torch.equal(
        a.forward(Feed.causal_chain([1, 2, 3], 0), None), b.forward(Feed.causal_chain([1, 2, 3], 0), None)
    )
    assert a.head is not a.embed
    (folder / "model-00002-of-00002.safetensors").unlink()
    refused(folder, "lacks the weight file 'model-00002")


def test_what_old_checkpoints_carry_along_is_passed_over(tmp_path: Path) -> None:
    folder = made(tmp_path / "m", auto_map={"AutoModelForCausalLM": "evil.Model"})
    change(folder, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}))
    change(folder, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    (folder / "evil.py").write_text("raise SystemExit('code of a model was run')")
    (folder / "pytorch_model.bin").write_bytes(b"never opened")
    model = load(folder, device="cpu")
    assert model.decoder.head is model.decoder.embed


def test_fingerprints_tell_models_apart(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a"), made(tmp_path / "b")
    assert fingerprint(a) == fingerprint(b) == load(a, device="cpu").fingerprint
    assert len(fingerprint(a)) == 16
    change(b, lambda t: t["model.norm.weight"].add_(1))
    assert fingerprint(a) != fingerprint(b)
    made(b, rope_theta=20000.0)
    assert fingerprint(a) != fingerprint(b)


# ---- what is refused


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "family": ({"model_type": "gpt2"}, "'gpt2', which is not supported; choose one of llama, smollm3"),
    "family of no text": ({"model_type": ["x"]}, "not supported"),
    "head": ({"architectures": ["LlamaForSequenceClassification"]}, "no LlamaForCausalLM"),
    "activation": ({"hidden_act": "gelu"}, "only 'silu'"),
    "quantised": ({"quantization_config": {"bits": 4}}, "quantised"),
    "rope": (
        {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0}},
        "'dynamic'.*default, linear, llama3, yarn, longrope",
    ),
    "yarn's mscale": (
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0}},
        "yarn with an mscale",
    ),
    "yarn's bands": (
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "beta_slow": 40}},
        "beta_slow 40, which must be below beta_fast 32",
    ),
    "longrope": (
        {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}},
        r"short_factor of longrope as \[1.0\]; it must be a list of \d+ positive numbers",
    ),
    "old longrope": ({"rope_scaling": {"type": "su", "short_factor": [1.0]}}, "the rule 'su', which is not"),
    "rope by layer": (
        {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}},
        "rotates its layers differently",
    ),
    "partial": ({"partial_rotary_factor": 0.5}, "only phi3"),
    "no factor": ({"rope_parameters": {"rope_type": "linear"}}, "factor as None"),
    "bands": (
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "factor": 2,
                "low_freq_factor": 4,
                "high_freq_factor": 1,
            }
        },
        "low_freq_factor 4, which must be below",
    ),
    "heads": ({"num_key_value_heads": 3}, "no multiple"),
    "no size": ({"hidden_size": None}, "hidden_size as None"),
    "negative size": ({"num_hidden_layers": -2}, "num_hidden_layers as -2"),
    "size of no number": ({"vocab_size": True}, "vocab_size as True"),
    "endless layers": ({"num_hidden_layers": 2000}, "more than the limit of 1000"),
    "huge size": ({"hidden_size": 1 << 30}, "hidden_size as 1073741824"),
    "epsilon": ({"rms_norm_eps": "small"}, "rms_norm_eps as small"),
    "odd head": ({"head_dim": 7}, "even number"),
    "gemma's activation": (
        {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "hidden_activation": "relu"},
        "'relu'; only 'gelu_pytorch_tanh' is supported",
    ),
    "both directions": (
        {
            "model_type": "gemma3_text",
            "architectures": ["Gemma3ForCausalLM"],
            "use_bidirectional_attention": True,
        },
        "reads windows of its text both ways",
    ),
    "mask beyond the vocabulary": (
        {"use_bidirectional_attention": True, "mask_token_id": 1 << 20},
        "mask_token_id as 1048576; it must be an id below",
    ),
    "mask of no number": (
        {"use_bidirectional_attention": True, "mask_token_id": "<mask>"},
        "mask_token_id as <mask>; it must be an id below",
    ),
    "gemma's rotation": (
        {
            "model_type": "gemma3_text",
            "architectures": ["Gemma3ForCausalLM"],
            "rope_parameters": {"full_attention": 3},
        },
        "rotation of its full_attention as no table",
    ),
    "pictures too": (
        {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": {}},
        "'gemma3', which is not supported",
    ),
    "experts": (
        {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]},
        "'mixtral', which is not supported",
    ),
    "flag of no truth": (
        {"tie_word_embeddings": "false"},
        "tie_word_embeddings as false; it must be true or false",
    ),
    "window of no number": (
        {
            "model_type": "qwen2",
            "architectures": ["Qwen2ForCausalLM"],
            "use_sliding_window": True,
            "max_window_layers": "x",
        },
        "max_window_layers as x; it must be a whole number",
    ),
    "compressed": ({"compression_config": {"format": "int-quantized"}}, "quantised"),
    "layer types": (
        {
            "model_type": "qwen2",
            "architectures": ["Qwen2ForCausalLM"],
            "use_sliding_window": True,
            "layer_types": ["x"],
        },
        "layer_types must name 2 layers",
    ),
    "no_rope_layers": (
        {"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1]},
        "a 0 or 1 for each of the 2 layers",
    ),
}


@pytest.mark.parametrize(("changes", "match"), CONFIGS.values(), ids=CONFIGS)
def test_a_config_that_we_cannot_run_exactly_is_refused(
    changes: dict[str, Any], match: str, tmp_path: Path
) -> None:
    folder = made(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    refused(folder, match)


def test_the_older_words_for_positions_are_read() -> None:
    old = {**CONFIG, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    new = {**CONFIG, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}}
    assert spec_from_config(old, "m") == spec_from_config(new, "m")
    rope = spec_from_config(old, "m").rope
    assert (rope.theta, rope.kind, rope.factor) == (5e5, "linear", 2.0)


def test_longrope_of_a_head_holds_for_all_that_its_model_reads() -> None:
    table = {"rope_type": "longrope", "short_factor": [1.0, 2.0], "original_max_position_embeddings": 64}

    def read(positions: int, factors: list[float]) -> Rope:
        return read_rope(
            Config({"rope_parameters": table | {"long_factor": factors}}), "head", 50.0, 4, positions
        )

    same = read(256, [1.0, 2.0])
    assert same.factors == (1.0, 2.0) and read(64, [3.0, 4.0]).factors == (1.0, 2.0)
    assert read_rope(Config({"rope_parameters": rope_table(same)}), "head", 50.0, 4, 256) == same
    with pytest.raises(
        LoadError, match=r"head rotates by longrope with other factors above 64 tokens, .* reads 65"
    ):
        read(65, [3.0, 4.0])


def test_yarn_extends_the_context_by_its_factor_where_the_config_leaves_the_original_length() -> None:
    """Qwen 2.5's cards ask for this, and vLLM does it; a config that gives the extended length itself means the same."""
    table = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

    def read(positions: int | None, **more: Any) -> tuple[int, list[str]]:
        config = {**CONFIG, "max_position_embeddings": positions, "rope_scaling": {**table, **more}}
        spec = spec_from_config(config, "m")
        return spec.max_positions, length_remarks(config, spec)

    says = "config.json of m gives max_position_embeddings {}, and yarn with factor 4 over 64 positions makes 256: the limit is"
    assert read(64) == (256, [f"{says.format(64)} 256 tokens."])
    assert read(256) == (256, [])
    assert read(512) == (512, [f"{says.format(512)} 512 tokens."]), (
        "what the config gives itself is not taken away"
    )
    assert read(64, original_max_position_embeddings=None)[0] == 256, (
        "without it the length beside the table is the original"
    )
    assert read(64, factor=0.5)[0] == 64
    llama3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    assert read(64, **llama3) == read(64, rope_type="linear") == (64, []), (
        "the others give the extended length"
    )
    with pytest.raises(
        LoadError, match="factor 1e\\+06 over 64 positions, more than the limit of 16777216 tokens"
    ):
        read(64, factor=1e6)


def test_a_model_without_a_causal_mask_says_so_and_names_its_mask() -> None:
    spec = spec_from_config({**CONFIG, "use_bidirectional_attention": True, "mask_token_id": 5}, "m")
    plain = spec_from_config(CONFIG, "m")
    assert (spec.causal, spec.mask_token, plain.causal, plain.mask_token) == (False, 5, True, None)
    assert spec_from_config({**CONFIG, "mask_token_id": -1}, "m").mask_token is None, (
        "a causal model has no use for it"
    )
    assert spec.record()["mask_token"] == 5 and "mask_token" not in plain.record(), (
        "headers stay as they were"
    )
    assert spec_of(spec.record()) == spec and spec_of(plain.record()) == plain


def test_gemma_3_says_its_two_rotations_in_older_and_in_newer_words() -> None:
    gemma = {
        **CONFIG,
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "num_hidden_layers": 12,
    }
    old = {
        **gemma,
        "rope_theta": 2e6,
        "rope_local_base_freq": 5e3,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    full = {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6}
    new = {**gemma, "rope_parameters": {"full_attention": full, "sliding_attention": {"rope_theta": 5e3}}}
    spec = spec_from_config(old, "m")
    assert spec == spec_from_config(new, "m")
    assert (spec.rope.theta, spec.rope.kind, spec.rope.factor) == (2e6, "linear", 8.0)
    assert spec.local_rope is not None
    assert (spec.local_rope.theta, spec.local_rope.kind) == (5e3, "default")
    assert [i for i in range(12) if spec.window(i) is None] == [5, 11], "every sixth layer sees everything"
    silent = spec_from_config({k: v for k, v in gemma.items() if k != "rope_theta"}, "m")
    assert silent.local_rope is not None
    assert (silent.rope.theta, silent.local_rope.theta) == (1e6, 1e4)


# hidden, feed-forward, layers, heads, KV heads, vocabulary, tied, and the total number of parameters
PUBLISHED = {
    "qwen2.5 0.5B": ("qwen2", 896, 4864, 24, 14, 2, 151_936, True, 494_032_768),
    "qwen2.5 7B": ("qwen2", 3584, 18944, 28, 28, 4, 152_064, False, 7_615_616_512),
    "qwen3 0.6B": ("qwen3", 1024, 3072, 28, 16, 8, 151_936, True, 596_049_920),
    "llama 3.2 1B": ("llama", 2048, 8192, 16, 32, 8, 128_256, True, 1_235_814_400),
    "llama 3.1 8B": ("llama", 4096, 14336, 32, 32, 8, 128_256, False, 8_030_261_248),
    "smollm2 135M": ("llama", 576, 1536, 30, 9, 3, 49_152, True, 134_515_008),
    "smollm3 3B": ("smollm3", 2048, 11008, 36, 16, 4, 128_256, True, 3_075_098_624),
    "mistral 7B": ("mistral", 4096, 14336, 32, 32, 8, 32_000, False, 7_241_732_096),
    "phi 3 mini": ("phi3", 3072, 8192, 32, 32, 32, 32_064, False, 3_821_079_552),
    "gemma 2 2B": ("gemma2", 2304, 9216, 26, 8, 4, 256_000, True, 2_614_341_888),
    "gemma 3 1B": ("gemma3_text", 1152, 6912, 26, 4, 1, 262_144, True, 999_885_952),
}


@pytest.mark.parametrize("row", PUBLISHED.values(), ids=PUBLISHED)
def test_published_shapes_come_to_their_published_sizes(row: tuple[Any, ...]) -> None:
    """Every bias and norm of a family is counted: the sum is the published number to the last parameter."""
    words = ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
             "num_key_value_heads", "vocab_size", "tie_word_embeddings")  # fmt: skip
    spec = spec_from_config(dict(zip(words, row, strict=False)), "m")
    assert spec.params == row[-1] == sum(reading._element_count(x) for x in tensor_shapes(spec).values())


def test_tensors_must_be_those_of_the_config(tmp_path: Path) -> None:
    lost, more, other = (made(tmp_path / x) for x in ("lost", "more", "other"))
    change(lost, lambda t: t.pop("model.layers.1.mlp.down_proj.weight"))
    refused(lost, r"lacks model\.layers\.1\.mlp\.down_proj\.weight")
    change(more, lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(16)}))
    refused(more, r"also holds model\.layers\.0\.self_attn\.q_proj\.bias")
    (other / "config.json").write_text(json.dumps({**CONFIG, "intermediate_size": 48}))
    refused(other, r"describes 6,\d+ parameters, the weights hold 4,\d+; .*1 %")


def test_a_shape_within_the_percent_is_still_checked(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    change(folder, lambda t: t.update({"model.norm.weight": torch.ones(17)}))
    refused(folder, r"model\.norm\.weight has the shape \[17\] and should have \[16\]")


def test_a_tied_head_of_another_shape_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    change(folder, lambda t: t.update({"lm_head.weight": torch.ones(3, 16)}))
    refused(folder, r"lm_head\.weight has the shape")


def test_integers_are_no_weights(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    change(folder, lambda t: t.update({"model.norm.weight": torch.ones(16, dtype=torch.int8)}))
    refused(folder, "stores model.norm.weight as I8")


def test_pickle_files_are_never_opened(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(folder, "pickle files, which can run code")


@pytest.mark.parametrize("lost", ["config.json", "model.safetensors"])
def test_a_folder_must_be_whole(lost: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / lost).unlink()
    refused(folder, f"no {lost}")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "no whole safetensors file"),
        (b"\xff" * 40, "header of"),
        ((17 << 20).to_bytes(8, "little") + b"{}", "header of 17825792 bytes"),
        ((1000).to_bytes(8, "little") + b"{}", "no whole safetensors file"),
    ],
    ids=["empty", "noise", "long header", "cut off"],
)
def test_a_damaged_weight_file_is_refused(content: bytes, match: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(content)
    refused(folder, match)


def test_a_checkpoint_cut_off_at_its_end_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-10])
    refused(folder, "no whole safetensors file")


def test_too_many_tensors_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "TENSORS", 5)
    refused(made(tmp_path / "m"), "more than 5 tensors")


@pytest.mark.parametrize(
    "content", [b"[1]", b"{", b"\xff", b"[" * 100_000], ids=["list", "cut", "bytes", "deep"]
)
def test_a_damaged_config_is_refused(content: bytes, tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "config.json").write_bytes(content)
    refused(folder, "config.json")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_links_out_of_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    shutil.copy(SHIPPED / "lab-draft" / "tokenizer.json", folder / "tokenizer.json")
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    refused(folder, "leads out of its folder")


def test_an_index_cannot_point_elsewhere(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "model.safetensors").rename(tmp_path / "outside.safetensors")
    index = {"weight_map": {"model.norm.weight": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(folder, "outside itself")


def test_a_hub_snapshot_may_link_to_its_blobs(tmp_path: Path) -> None:
    folder = made(tmp_path / "models--a--b" / "snapshots" / "0123")
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).rename(blobs / name)
        (folder / name).symlink_to(os.path.join("..", "..", "blobs", name))
    assert load(folder, device="cpu").spec.n_layers == 2


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("./nowhere", "There is no folder ./nowhere; use a shipped model .*lab"),
        ("/no/such/folder", "There is no folder"),
        (Path("nowhere"), "There is no folder"),
        ("../../nowhere", "There is no folder"),
        ("a b", "is no name of a model"),
        ("", "is no name of a model"),
        ("..", "is no name of a model"),
    ],
)
def test_a_name_of_nothing_is_refused_with_the_ways(name: str | Path, match: str) -> None:
    with pytest.raises(LoadError, match=match):
        load(name, device="cpu")


def test_without_a_network_the_sentence_names_the_shipped_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection\nand no cache")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(
        LoadError, match=r"could not be fetched.*shipped model \(lab, lab-blocks, .*lab-recall\).*\./model"
    ) as error:
        load("someone/some-model", device="cpu")
    assert "\n" not in str(error.value)


def test_a_hub_model_is_judged_before_its_weights_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def download(name: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        assert ignore_patterns == ["*/*"]
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    folder = made(tmp_path / "m")
    assert load("someone/some-model", device="cpu").name == "someone/some-model"
    assert [any("safetensors" in x for x in patterns) for patterns in asked] == [False, True]
    assert not any(x.endswith((".py", ".bin", ".pt", "*")) for patterns in asked for x in patterns)
    asked.clear()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "model_type": "gpt2"}))
    with pytest.raises(LoadError, match="gpt2"):
        load("someone/some-model", device="cpu")
    assert len(asked) == 1


def test_types_and_devices_that_are_not_there_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path / "m")
    refused(folder, "'int8' is not supported; use one of float32, bfloat16, float16, float64", dtype="int8")
    for device in ("cuda:99", "nonsense"):
        with pytest.raises(LoadError, match="use 'cpu'"):
            load(folder, device=device)
    monkeypatch.setattr(loading, "free_bytes", lambda device: 1000)
    refused(folder, "GiB are free on cpu; use a smaller type")


@pytest.mark.parametrize("family", ["llama", "phi3", "qwen3", "gemma2", "gemma3_text"])
def test_the_tensors_of_a_spec_are_its_parameters(family: str) -> None:
    config = {**CONFIG, "model_type": family, "architectures": None, "attention_bias": True, "mlp_bias": True}
    for spec in (spec_from_config(config, "m"), replace(spec_from_config(config, "m"), tied=False)):
        assert sum(reading._element_count(x) for x in tensor_shapes(spec).values()) == spec.params
