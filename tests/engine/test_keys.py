"""Keys of config.json: each is used, known to change no number, refused, or named in a remark of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from checkpoints import CONFIG, made

from decodescope.engine.model.checkpoint import adapter as adapters
from decodescope.engine.model.checkpoint.config import key_remarks
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.keys import HARMLESS, OFF, REASONS, Config, unread_key_remarks
from decodescope.engine.model.heads.files import HEADS, NETS, NOTES, read_heads, write_head
from decodescope.engine.session.load import SHIPPED, fingerprint, load


def named(**keys: Any) -> str:
    """The remark on a Llama's config with these keys; empty if there is none."""
    return "".join(key_remarks({**CONFIG, **keys}, "m"))


# ---- what counts as read


def test_a_key_is_read_when_its_value_is_asked_for() -> None:
    config = Config({"a": 1, "b": {"c": 2, "d": {"e": 3}}, "f": None, "g": {"h": 4}})
    assert "a" in config and len(config) == 4 and str(config) == str({**config._entries})
    assert config.unread_keys() == {"a": 1, "b": {"c": 2, "d": {"e": 3}}, "g": {"h": 4}}, (
        "to look for a key is not to read it"
    )
    assert config["a"] == 1 and config.get("b").get("c") == 2 and config.get("z", 7) == 7
    assert config.unread_keys() == {"b.d": {"e": 3}, "g": {"h": 4}}, (
        "a table that was opened gives its own keys"
    )
    config["b"]["d"].skip("e")
    config.agree("g", {"h": 5})
    assert config.unread_keys() == {"g": {"h": 4}}
    config.agree("g", {"h": 4})
    assert config.unread_keys() == {}


def test_entries_are_found_in_tables_too() -> None:
    config = Config({"ids": [1], "x": {"ids": [2], "y": {"ids": [3], "z": 4}}})
    assert list(config.find(["ids"])) == [("ids", [1]), ("x.ids", [2]), ("x.y.ids", [3])]
    assert config.unread_keys() == {"x.y.z": 4}


def test_a_remark_is_one_short_sentence() -> None:
    config = Config(
        {f"k{i}\n": "v" * 200 for i in range(9)} | {"use_cache": True, "attention_bias": False, "own": 1}
    )
    (said,) = unread_key_remarks(config, "m", "nothing follows", harmless=["own"])
    assert (
        said.startswith("The config.json of m gives k0\\n = vvvv") and said.isprintable() and len(said) < 500
    )
    assert said.endswith(" and 4 more, which are not read: nothing follows.") and "use_cache" not in said
    assert unread_key_remarks(Config({"attention_bias": True}), "m", "x")[0].endswith(
        "attention_bias = True, which is not read: x."
    )
    assert unread_key_remarks(Config({"pretraining_tp": 8, "pruned_heads": {}, "z": None}), "m", "x") == []


def test_each_harmless_key_has_one_reason() -> None:
    assert sum(map(len, REASONS.values())) == len(HARMLESS) and not HARMLESS & OFF.keys()


# ---- models


def test_the_shipped_models_their_adapters_and_heads_need_no_remark() -> None:
    for folder in (x for x in SHIPPED.iterdir() if (x / "config.json").is_file()):
        assert key_remarks(json.loads((folder / "config.json").read_text()), folder.name) == []
        for path in folder.glob("adapters/*"):
            assert adapters.key_remarks(path, adapters.read_settings(path)) == []
    assert load("lab", "float32", "cpu").remarks == []


HUB = {  # config.json of well-known models, with smaller sizes
    "Qwen2.5": dict(
        model_type="qwen2", architectures=["Qwen2ForCausalLM"], attention_dropout=0.0, max_window_layers=21,
        sliding_window=32768, use_sliding_window=False, rope_theta=1e6, torch_dtype="bfloat16", use_mrope=False,
    ),
    "SmolLM2": dict(is_llama_config=True, rope_interleaved=False, rope_scaling=None, pretraining_tp=1, attention_bias=False),
    "Llama 3.1": dict(
        rope_theta=5e5, rope_scaling=dict(
            factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64, rope_type="llama3",
        ),
    ),
    "Phi 3": dict(
        model_type="phi3", architectures=["Phi3ForCausalLM"], auto_map={"AutoConfig": "x.Y"}, embd_pdrop=0.0, resid_pdrop=0.0,
        original_max_position_embeddings=4096, sliding_window=2047, attention_bias=False,
    ),
    "Gemma 2": dict(
        model_type="gemma2", architectures=["Gemma2ForCausalLM"], hidden_act="gelu_pytorch_tanh", sliding_window=4096,
        hidden_activation="gelu_pytorch_tanh", cache_implementation="hybrid", query_pre_attn_scalar=256,
    ),
    "Gemma 3": dict(
        model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], hidden_act="gelu_pytorch_tanh", sliding_window=512,
        rope_local_base_freq=10000, sliding_window_pattern=6, attn_logit_softcapping=None, rope_theta=1e6,
    ),
    "draft model of PARD": dict(pard_token=5, spd_type="pard"),
    "both words": dict(
        rope_theta=1e4, rope_scaling=dict(type="linear", rope_type="linear", factor=2.0),
        rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=1e4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HUB)
def test_configs_as_they_lie_on_the_hub_need_no_remark(name: str) -> None:
    config = {k: x for k, x in CONFIG.items() if k not in ("rope_theta", "hidden_act")} | HUB[name]
    assert key_remarks(config, "m") == []


def test_what_changes_the_computation_and_is_not_read_is_named() -> None:
    for key, value in {
        "attention_multiplier": 0.5, "logit_scale": 0.1, "final_logit_softcapping": 30.0, "use_qk_norm": True,
        "no_rope_layers": [1, 0], "attention_chunk_size": 64, "sliding_window": 64, "layer_types": ["sliding_attention"] * 2,
        "attn_logit_softcapping": 50.0, "num_experts": 8, "mask_token_id": 3, "use_sliding_window": True, "spd_type": "pard2",
    }.items():  # fmt: skip
        said = named(**{key: value})
        assert (
            said
            == f"The config.json of m gives {key} = {value}, which is not read: the text is computed all the same."
        )
    assert "attention_bias = True" in "".join(
        key_remarks(
            {**CONFIG, "model_type": "mistral", "attention_bias": True} | {"architectures": None}, "m"
        )
    )
    assert "rope_parameters.factor = 8.0" in named(
        rope_parameters={"rope_type": "default", "factor": 8.0, "rope_theta": 1e4}
    )
    assert "rope_theta = 5.0" in named(
        rope_theta=5.0, rope_parameters={"rope_type": "default", "rope_theta": 1e4}
    )
    both = named(
        rope_scaling={"type": "linear", "factor": 2.0}, rope_parameters={"rope_type": "yarn", "factor": 2.0}
    )
    assert "gives rope_parameters.rope_type = yarn, which" in both
    gemma = {**CONFIG, "model_type": "gemma3_text", "architectures": None}
    tables = {
        "full_attention": {"rope_type": "default", "beta_fast": 3},
        "odd_attention": {"rope_theta": 2.0},
    }
    (said,) = key_remarks({**gemma, "attn_logit_softcapping": 3.0, "rope_parameters": tables}, "m")
    assert all(
        x in said
        for x in ("attn_logit_softcapping = 3.0", "beta_fast = 3", "rope_parameters.odd_attention = ")
    )


def test_a_layer_with_settings_of_its_own_is_refused() -> None:
    with pytest.raises(LoadError, match=r"its own settings \(per_layer_config\), which is not supported"):
        key_remarks({**CONFIG, "per_layer_config": {"1": {"hidden_act": "gelu"}}}, "m")


def test_a_loaded_model_keeps_the_remarks_of_its_config_and_of_its_adapter(tmp_path: Path) -> None:
    folder = made(tmp_path / "m", logit_scale=0.5, eos_token_id=3)
    tensors = {
        "model.layers.0.self_attn.q_proj.weight.A": torch.ones(1, 16),
        "model.layers.0.self_attn.q_proj.weight.B": torch.ones(16, 1),
    }
    adapters.write(
        folder / "adapters" / "more",
        tensors,
        1,
        1.0,
        fingerprint(folder),
        notes={"dropout": 0.1, "made_with": {}},
    )
    assert ["logit_scale = 0.5" in x for x in load(folder, "float32", "cpu").remarks] == [True]
    first, second = load(f"{folder}+more", "float32", "cpu").remarks
    assert (
        "logit_scale = 0.5" in first
        and "gives dropout = 0.1, which is not read: the adapter is merged all the same" in second
    )


# ---- heads of our own format


def test_a_key_that_no_net_of_ours_reads_is_named(tmp_path: Path) -> None:
    for kind in ("medusa", "eagle3"):
        head = toys.heads(kind, 32)
        write_head(head, tmp_path / "heads" / kind, {"made_with": {"seed": 0}, "window": 64})
        (said,) = read_heads(tmp_path, toys.SPEC, torch.float32, torch.device("cpu"))[kind].remarks
        assert said == (
            f"The config.json of {tmp_path / 'heads' / kind} gives window = 64, which is not read: the heads are read all "
            "the same."
        )
        write_head(head, tmp_path / "heads" / kind, dict.fromkeys(NOTES, 1))
        assert read_heads(tmp_path, toys.SPEC, torch.float32, torch.device("cpu"))[kind].remarks == []


def test_heads_of_another_model_are_read_with_a_remark(tmp_path: Path) -> None:
    folder = made(tmp_path / "m", eos_token_id=3)
    for kind, mark in (
        ("medusa", "0123456789abcdef"),
        ("blockwise", fingerprint(folder)),
        ("specdec", "f" * 16),
    ):
        head = toys.heads(kind, 16)
        head.made_for = mark
        write_head(head, folder / "heads" / kind)
    assert load(folder, "float32", "cpu").remarks == [
        "The heads medusa were trained on a model with the fingerprint 0123456789abcdef, and m has "
        f"{fingerprint(folder)}: their guesses may be worse."
    ]


def test_heads_of_no_known_kind_are_named(tmp_path: Path) -> None:
    folder = made(tmp_path / "m", eos_token_id=3)
    for name in ("daisy", "medusa", "rose\x1b"):
        write_head(toys.heads("medusa", 16), folder / "heads" / name)
    (said,) = load(folder, "float32", "cpu").remarks
    assert said == rf"{folder / 'heads'} holds heads of no known kind, which are not read: daisy, rose\x1b."


def test_a_wrong_value_in_a_config_of_our_heads_is_one_sentence(tmp_path: Path) -> None:
    write_head(toys.heads("eagle", 32), tmp_path / "heads" / "eagle")
    path = tmp_path / "heads" / "eagle" / "config.json"
    good = json.loads(path.read_text())
    for key, says in {
        "kind": "holds heads of the kind", "shape": "the shape of eagle heads says", "target": "must be a model's fingerprint",
        "rates": "rates must be lists of numbers", "rotations": "rotations must be tables for attention",
    }.items():  # fmt: skip
        for value in ([1], {"x": 1}, -1, True):
            path.write_text(json.dumps({**good, key: value}))
            with pytest.raises(LoadError, match=says) as error:
                read_heads(tmp_path, toys.SPEC, torch.float32, torch.device("cpu"))
            assert str(error.value).endswith(".")
    path.write_text(json.dumps({**good, "rotations": {"attention": {"rope_type": "dynamic"}}}))
    with pytest.raises(LoadError, match="'dynamic', which is not supported"):
        read_heads(tmp_path, toys.SPEC, torch.float32, torch.device("cpu"))


def test_the_notes_of_training_are_no_sizes_of_a_net() -> None:
    assert not {*NOTES} & {"kind", "shape", "target", "rates", "rotations"} and {*HEADS} <= {*NETS}
