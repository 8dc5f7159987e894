"""Small checkpoints with random weights, in folders that `load` reads, for the tests that change them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from decodescope.engine.model.checkpoint.config import spec_from_config
from decodescope.engine.model.checkpoint.weights import tensor_shapes

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": 40,
    "eos_token_id": [3, 39, 77],
}


def made(folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> Path:
    """Write a checkpoint with random weights; `changes` go into its config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**CONFIG, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    g = torch.Generator().manual_seed(0)
    wanted = tensor_shapes(spec_from_config(config, "made"))
    tensors = {name: torch.randn(shape, generator=g).to(dtype) for name, shape in wanted.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def change(folder: Path, edit: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Edit the tensors of a checkpoint."""
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")
