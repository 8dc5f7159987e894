"""EAGLE-3 heads in the layouts of speculators and SGLang: the folder that the other library would have written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from ...checkpoint.config import FAMILIES as MODEL_FAMILIES
from ...checkpoint.config import rope_table
from ...checkpoint.folder import LoadError
from ...checkpoint.folder_writer import write_folder
from ...layers.matrix import unpack
from ...layers.vocabulary import Vocabulary
from ..base import RotaryPart
from ..drafting.eagle3 import Eagle3Layer
from .eagle3 import LAYER_IDS, NORMS, SGLANG, WORDS, map_tensors
from .published_folder import EMBEDDING
from .speculators import KEY, LAYER

LAYOUTS = ("speculators", "sglang")
VERSION = "0.9.0"  # of speculators, whose config was followed
DRAFT_TOKENS = 5  # that a config of speculators proposes


def write_published(
    head: Eagle3Layer, folder: Path, layout: str, target: Vocabulary, spec: ModelSpec, dtype: torch.dtype
) -> None:
    """Write `head` to `folder` in a layout of LAYOUTS: config.json and model.safetensors, in `dtype`.

    The folder is whole: it holds the embedding and the rows of the vocabulary matrix that the head drafts with, the target's
    where the head has none of its own. A product of two matrices is multiplied out. Raises LoadError, in one sentence, for a
    head that the layout has no words for; nothing is written then.
    """
    assert head.kind == Eagle3Layer.kind, "no layout here has words for masks"
    reason = _missing_words(head, layout, spec)
    if reason is not None:
        raise LoadError(f"This head cannot be written in the layout of {layout}: {reason}.")
    config = (_speculators_config if layout == "speculators" else _sglang_config)(head, spec)
    config["dtype"] = str(dtype).removeprefix("torch.")
    tensors = {
        name: x.to("cpu", dtype if x.is_floating_point() else x.dtype).contiguous()
        for name, x in _name_tensors(head, layout, target).items()
    }
    write_folder(folder, tensors, config)


def _missing_words(head: Eagle3Layer, layout: str, spec: ModelSpec) -> str | None:
    """Why the layout cannot describe the head, in words that follow a colon; None if it can."""
    shape, windows = head.shape, [x.window for x in _rotary_parts(head)]
    if len({*windows} - {0}) > 1:
        return "its layers have windows of different lengths"
    if layout == "speculators":
        reasons = {
            "it reads the target's final feature, without fc": shape["unfused"],
            "its fc has a bias": shape["fuse_bias"],
            "of queries, keys, values and output only a part has biases": shape["qkv_bias"]
            != shape["out_bias"],
            "layers with norms of queries and keys have no biases in their feed-forward block": shape[
                "qk_norm"
            ]
            and shape["mlp_bias"],
        }
    else:
        places = head.places(spec.n_layers)
        reasons = {f"SGLang does not know {x}": shape[x] for x in NORMS}
        reasons |= {
            "SGLang computes one layer": shape["layers"] > 1,
            "SGLang's layer has no norms of queries and keys": shape["qk_norm"],
            "SGLang's layer has no window": any(windows),
            "SGLang counts layers by their outputs, and the input of the first layer is none": 0 in places,
        }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _rotary_parts(head: Eagle3Layer) -> list[RotaryPart]:
    """The attention of each layer."""
    return [x for x in head.modules() if isinstance(x, RotaryPart)]


def _layer_words(head: Eagle3Layer, spec: ModelSpec) -> dict[str, Any]:
    """The sizes of the layers, by the keys of a model's config."""
    shape = head.shape
    return {
        "hidden_act": "silu",
        "hidden_size": shape["d"],
        "intermediate_size": shape["d_ff"],
        "num_attention_heads": shape["n_heads"],
        "num_key_value_heads": shape["n_kv_heads"],
        "head_dim": shape["head_dim"],
        "num_hidden_layers": shape["layers"],
        "vocab_size": shape["vocab"],
        "rms_norm_eps": shape["eps"] / 1e9,
        "max_position_embeddings": spec.max_positions,
        "attention_bias": bool(shape["qkv_bias"]),
        "mlp_bias": bool(shape["mlp_bias"]),
        "tie_word_embeddings": False,
    }


def _speculators_config(head: Eagle3Layer, spec: ModelSpec) -> dict[str, Any]:
    """The config as speculators writes it."""
    shape, windows = head.shape, [x.window for x in _rotary_parts(head)]
    layer = _layer_words(head, spec) | {"model_type": "qwen3" if shape["qk_norm"] else "llama"}
    layer["rope_parameters"] = rope_table(_rotary_parts(head)[0].rope, shape["head_dim"])
    if shape["qk_norm"]:
        del layer["mlp_bias"]
        layer["use_sliding_window"] = any(windows)
    if any(windows):
        layer["layer_types"] = ["sliding_attention" if x else "full_attention" for x in windows]
        layer["sliding_window"] = max(windows)
    family = MODEL_FAMILIES.get(spec.family)
    around = {
        "algorithm": "eagle3",
        "default_proposal_method": "greedy",
        "proposal_methods": [
            {
                "proposal_type": "greedy",
                "speculative_tokens": DRAFT_TOKENS,
                "verifier_accept_k": 1,
                "accept_tolerance": 0.0,
            }
        ],
        "verifier": {
            "name_or_path": spec.name,
            "architectures": [] if family is None else [family.architecture],
        },
    }
    return {
        "architectures": ["Eagle3DraftModel"],
        KEY: "eagle3",
        "speculators_version": VERSION,
        "speculators_config": around,
        "draft_vocab_size": shape["kept"],
        LAYER_IDS[0]: list(head.places(spec.n_layers)),
        **{key: bool(shape[key]) for key in NORMS},
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        LAYER: layer,
    }


def _sglang_config(head: Eagle3Layer, spec: ModelSpec) -> dict[str, Any]:
    """The config as SGLang's SpecForge writes it. Layers are counted by their outputs."""
    shape = head.shape
    rope = rope_table(_rotary_parts(head)[0].rope, shape["head_dim"])
    config = {"architectures": [SGLANG], "model_type": "llama", **_layer_words(head, spec)}
    config |= {"draft_vocab_size": shape["kept"], "rope_theta": rope.pop("rope_theta")}
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    if shape["qkv_bias"] or shape["out_bias"]:
        config["attention_bias"], config["qkv_bias"] = True, bool(shape["qkv_bias"])
    if shape["fuse_bias"] or shape["out_bias"]:
        config["bias"] = True
    ids = [] if shape["unfused"] else [int(x) - 1 for x in head.places(spec.n_layers)]
    used = {"use_aux_hidden_state": not shape["unfused"]}
    return config | {"eagle_config": {LAYER_IDS[0]: ids, **used} if ids else used}


def _name_tensors(head: Eagle3Layer, layout: str, target: Vocabulary) -> dict[str, Tensor]:
    """The tensors by the names of the layout."""
    ours: Mapping[str, Tensor] = head.tensors()
    shape, ids = head.shape, head.ids.cpu()
    known = dict(ours)
    if "down.weight" in known:  # float64, so that the product is rounded once
        known["fuse.weight"] = known["fuse.weight"].double() @ known["down.weight"].double()
    known |= {f"state_norms.{i}": x for i, x in enumerate(known.get("state_norms", ()))}
    names = [f"layers.{i}" for i in range(shape["layers"])]
    names[0] = names[0] if layout == "speculators" else "midlayer"
    named = {}
    for x in map_tensors(shape, names):
        named[f"{x.theirs}.weight"] = known[x.ours if len(x.shape) == 1 else f"{x.ours}.weight"]
        if x.bias:
            named[f"{x.theirs}.bias"] = known[f"{x.ours}.bias"]
    embed = target.embed if head.own_embed is None else head.own_embed
    named[EMBEDDING] = embed.detach()
    named[WORDS] = unpack(target.head)[head.ids] if head.words is None else known["words.0.weight"]
    if shape["kept"] < shape["vocab"]:
        named |= {"d2t": ids - torch.arange(shape["kept"], device="cpu"), "t2d": ours["mask"].bool()}
    return named
