"""Folders of random draft heads in the layouts of others, for a toy target of six layers."""

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
LAYER = dict(
    model_type="llama", hidden_size=D, intermediate_size=FF, num_attention_heads=H, num_key_value_heads=G, head_dim=W,
    num_hidden_layers=1, vocab_size=V, rms_norm_eps=1e-6, hidden_act="silu", max_position_embeddings=SPEC.max_positions,
    attention_bias=False, mlp_bias=False, rope_parameters={"rope_type": "default", "rope_theta": 500.0},
)  # fmt: skip
COMMON = dict(
    use_cache=True, initializer_range=0.02, bos_token_id=1, transformers_version="5.0.0", dtype="bfloat16"
)


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


def target(spec: Any = SPEC) -> Decoder:
    return toys.decoder(spec, 3, torch.float64)


def head_of(folder: Path, kind: str, decoder: Decoder) -> Head:
    return load_head(folder, decoder.spec, kind).copy_to(dtype=torch.float64)
