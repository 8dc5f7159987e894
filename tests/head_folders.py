"""Folders of draft heads as their projects write them, with random tensors: what tests of their layouts share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import toys
from safetensors.torch import save_file

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.files import load_head

D, V = 32, 13  # width, ids
H, G, W, FF = 4, 2, 8, 20  # query heads, KV heads, width of a head, of the feed-forward block
SPEC = toys.toy_spec(n_layers=6, heads=())
KEPT = [1, 2, 5, 6, 11, 12]
IDS = "eagle_aux_hidden_state_layer_ids"
LAYER = dict(
    model_type="llama", hidden_size=D, intermediate_size=FF, num_attention_heads=H, num_key_value_heads=G, head_dim=W,
    num_hidden_layers=1, vocab_size=V, rms_norm_eps=1e-6, hidden_act="silu", max_position_embeddings=SPEC.max_positions,
    attention_bias=False, mlp_bias=False, rope_parameters={"rope_type": "default", "rope_theta": 500.0},
)  # fmt: skip
COMMON = dict(
    use_cache=True, initializer_range=0.02, bos_token_id=1, transformers_version="5.0.0", dtype="bfloat16"
)


def authors(**changes: Any) -> dict[str, Any]:
    """A config as SGLang's SpecForge writes it."""
    base = {**LAYER, **COMMON, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(KEPT)}
    return {**base, "eagle_config": {IDS: [0, 2, 4]}, "tie_word_embeddings": False, **changes}


def speculators(kind: str = "eagle3", layer: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A config as speculators writes it."""
    around = {
        "algorithm": kind, "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"name_or_path": "someone/toy", "architectures": ["LlamaForCausalLM"]},
    }  # fmt: skip
    own = {"architectures": ["Speculator"], "speculators_config": around, "speculators_model_type": kind}
    own |= {"speculators_version": "0.9.0", "transformers_version": "5.0.0", "auto_map": {"": "config.Kind"}}
    own |= {"tie_word_embeddings": False} if kind == "eagle3" else {}
    if kind == "eagle3":
        own |= {
            "draft_vocab_size": len(KEPT),
            "norm_before_residual": False,
            "norm_before_fc": False,
            IDS: [1, 3, 5],
        }
        own |= {
            "fc_norm": False,
            "norm_output": False,
            "embed_requires_grad": False,
            "target_hidden_size": None,
        }
    else:
        own |= {
            "fusion_bias": False,
            "layernorms": False,
            "transformer_layer_architecture": "LlamaDecoderLayer",
        }
    return {**own, "transformer_layer_config": {**LAYER, **COMMON, **(layer or {})}, **changes}


def layer_shapes(place: str, width: int, layer: dict[str, Any], norms: bool) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a decoder layer without the norms before its attention."""
    attention = {"q": (H * W, width), "k": (G * W, width), "v": (G * W, width), "o": (D, H * W)}
    mlp = {"gate": (FF, D), "up": (FF, D), "down": (D, FF)}
    shapes = {f"{place}.self_attn.{x}_proj.weight": shape for x, shape in attention.items()}
    shapes |= {f"{place}.mlp.{x}_proj.weight": shape for x, shape in mlp.items()}
    if layer.get("attention_bias"):
        shapes |= {f"{place}.self_attn.{x}_proj.bias": shape[:1] for x, shape in attention.items()}
    if layer.get("mlp_bias"):
        shapes |= {f"{place}.mlp.{x}_proj.bias": shape[:1] for x, shape in mlp.items()}
    shapes |= {f"{place}.self_attn.{x}_norm.weight": (W,) for x in "qk"} if norms else {}
    return shapes | {f"{place}.post_attention_layernorm.weight": (D,)}


def eagle3_shapes(
    config: dict[str, Any], first: str, states: int, drop: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of an EAGLE-3 head with this config."""
    layer = config.get("transformer_layer_config", config)
    flags = {**config, **config.get("eagle_config", {})}
    qwen = layer.get("model_type", "qwen3") == "qwen3"
    shapes = layer_shapes(first, 2 * D, layer, qwen) | {
        f"{first}.{x}.weight": (D,) for x in ("hidden_norm", "input_layernorm")
    }
    for i in range(1, layer["num_hidden_layers"]):
        shapes |= layer_shapes(f"layers.{i}", D, layer, qwen) | {f"layers.{i}.input_layernorm.weight": (D,)}
    shapes |= {
        "fc.weight": (D, states * D),
        "norm.weight": (D,),
        "lm_head.weight": (config["draft_vocab_size"] or V, D),
    }
    shapes |= {"embed_tokens.weight": (V, D)}
    shapes |= {"input_norm.weight": (states * D,)} if flags.get("norm_before_fc") else {}
    shapes |= {f"fc_norm.{i}.weight": (D,) for i in range(states)} if flags.get("fc_norm") else {}
    shapes |= {"fc.bias": (D,)} if config.get("bias") else {}
    return {name: x for name, x in shapes.items() if name not in drop}


def written(
    folder: Path, config: dict[str, Any], shapes: dict[str, tuple[int, ...]], lists: tuple[str, ...]
) -> Path:
    """A folder with this config and random tensors; lists: which of d2t and t2d it has."""
    g = torch.Generator().manual_seed(4)
    tensors = {
        name: torch.randn(shape, generator=g) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.3)
        for name, shape in shapes.items()
    }
    tensors = {name: x + 1 if "norm" in name else x for name, x in tensors.items()}
    ids = torch.tensor(KEPT)
    known = {"d2t": ids - torch.arange(len(KEPT)), "t2d": torch.isin(torch.arange(V), ids)}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors | {name: known[name] for name in lists}, folder / "model.safetensors")
    return folder


WINDOWED = {
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 3,
}
QWEN = {"model_type": "qwen3", "num_hidden_layers": 2}


def target(spec: Any = SPEC) -> Decoder:
    return toys.decoder(spec, 3, torch.float64)


def head_of(folder: Path, kind: str, decoder: Decoder) -> Head:
    return load_head(folder, decoder.spec, kind).copy_to(dtype=torch.float64)
