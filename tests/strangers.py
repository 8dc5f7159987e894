"""Folders as others publish them: models, tokenizers and draft heads in their makers' layouts, tiny and random."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from decodescope.engine.session.load import SHIPPED

Tensors = dict[str, torch.Tensor]
VOCAB, WIDTH, HEADS, KV_HEADS, HEAD_DIM, FEED = (
    4096,
    32,
    4,
    2,
    8,
    48,
)  # of all targets; the tokenizer has 4096 ids
LAYERS = 16  # an EAGLE-3 head reads its layers 2, 8 and 13
LLAMA: dict[str, Any] = dict(
    architectures=["LlamaForCausalLM"],
    model_type="llama",
    hidden_act="silu",
    hidden_size=WIDTH,
    intermediate_size=FEED,
    num_attention_heads=HEADS,
    num_key_value_heads=KV_HEADS,
    head_dim=HEAD_DIM,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    max_position_embeddings=256,
    vocab_size=VOCAB,
    eos_token_id=0,
    pad_token_id=1,
    bos_token_id=None,
    attention_bias=False,
    mlp_bias=False,
    tie_word_embeddings=False,
    torch_dtype="float32",
)
EAGLE: dict[str, Any] = {
    **{k: v for k, v in LLAMA.items() if k not in ("tie_word_embeddings", "head_dim")},
    "num_hidden_layers": 1,
}
EAGLE3: dict[str, Any] = {
    **EAGLE,
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": VOCAB // 2,
}


def random_tensors(shapes: dict[str, tuple[int, ...]], seed: int = 1) -> Tensors:
    """Normal random numbers, large enough for attention to be uneven; norms are near 1."""
    g = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(shape, generator=g) * 2 * shape[-1] ** -0.5 for name, shape in shapes.items()
    }
    return {name: 1 + 0.1 * x if "norm" in name else x for name, x in tensors.items()}


def layer_shapes(place: str, rows: int = WIDTH) -> dict[str, tuple[int, ...]]:
    """The tensor shapes of one Llama layer without `input_layernorm`; its attention reads rows of width `rows`."""
    attention = {
        "q": (HEADS * HEAD_DIM, rows),
        "k": (KV_HEADS * HEAD_DIM, rows),
        "v": (KV_HEADS * HEAD_DIM, rows),
    }
    feed = {"gate": (FEED, WIDTH), "up": (FEED, WIDTH), "down": (WIDTH, FEED)}
    return {
        **{f"{place}.self_attn.{x}_proj.weight": shape for x, shape in attention.items()},
        f"{place}.self_attn.o_proj.weight": (WIDTH, HEADS * HEAD_DIM),
        **{f"{place}.mlp.{x}_proj.weight": shape for x, shape in feed.items()},
        f"{place}.post_attention_layernorm.weight": (WIDTH,),
    }


def llama_tensors(layers: int = 2) -> Tensors:
    """The weights of a whole Llama."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    for i in range(layers):
        shapes |= layer_shapes(f"model.layers.{i}") | {f"model.layers.{i}.input_layernorm.weight": (WIDTH,)}
    return random_tensors({**shapes, "lm_head.weight": (VOCAB, WIDTH)})


def save_folder(
    folder: Path, config: dict[str, Any], tensors: Tensors | None = None, file: str = "model.safetensors"
) -> Path:
    """Write a folder with a config.json and a file of tensors, safetensors or a pickle by its suffix."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tensors and file.endswith(".safetensors"):
        save_file({name: x.contiguous() for name, x in tensors.items()}, folder / file, {"format": "pt"})
    elif tensors:
        torch.save(tensors, folder / file)
    return folder


def save_llama(folder: Path, layers: int = 2, tensors: Tensors | None = None, **changes: Any) -> Path:
    """Write a Llama with the tokenizer of `lab`; `changes` go into its config.json."""
    config = {**LLAMA, "num_hidden_layers": layers, **changes}
    save_folder(folder, config, llama_tensors(layers) if tensors is None else tensors)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / "lab" / name, folder / name)
    return folder


def edit_json(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file, which need not exist."""
    had = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**had, **changes}))


def edit_tensors(
    folder: Path, file: str = "model.safetensors", drop: tuple[str, ...] = (), **more: torch.Tensor
) -> None:
    """Add and remove tensors of a folder."""
    tensors = {**load_file(folder / file), **more}
    save_file({name: x for name, x in tensors.items() if name not in drop}, folder / file, {"format": "pt"})


def eagle1_tensors(layers: int = 1, bias: bool = True) -> Tensors:
    """Tensors with the names of EAGLE-1 and EAGLE-2."""
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (VOCAB, WIDTH),
        "fc.weight": (WIDTH, 2 * WIDTH),
    }
    shapes |= {"fc.bias": (WIDTH,)} if bias else {}
    for i in range(layers):
        shapes |= layer_shapes(f"layers.{i}") | (
            {f"layers.{i}.input_layernorm.weight": (WIDTH,)} if i else {}
        )
    return random_tensors(shapes, 2)


def eagle3_tensors(kept: list[int] | None = None) -> Tensors:
    """Tensors with the names of EAGLE-3, and a draft vocabulary of `kept` ids (the even ones)."""
    ids = torch.tensor(kept or range(0, VOCAB, 2))
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (WIDTH, 3 * WIDTH),
        **layer_shapes("midlayer", 2 * WIDTH),
        "midlayer.hidden_norm.weight": (WIDTH,),
        "midlayer.input_layernorm.weight": (WIDTH,),
        "norm.weight": (WIDTH,),
        "lm_head.weight": (len(ids), WIDTH),
    }
    lists = {"d2t": ids - torch.arange(len(ids)), "t2d": torch.isin(torch.arange(VOCAB), ids)}
    return random_tensors(shapes, 3) | lists


def medusa_tensors(heads: int = 3) -> Tensors:
    """Tensors with the names of Medusa-1: a block and a vocabulary matrix per head."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(heads):
        shapes |= {
            f"{i}.0.linear.weight": (WIDTH, WIDTH),
            f"{i}.0.linear.bias": (WIDTH,),
            f"{i}.1.weight": (VOCAB, WIDTH),
        }
    return random_tensors(shapes, 4)


def hydra_tensors(heads: int = 2) -> Tensors:
    """Tensors with the names of Hydra with `mlp` heads: head i reads the hidden state and i + 1 embeddings."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(heads):
        block = f"hydra_mlp.{i}.0"
        shapes |= {f"{block}.linear.weight": (WIDTH, (i + 2) * WIDTH), f"{block}.linear.bias": (WIDTH,)}
        shapes |= {
            f"{block}.res_connection.weight": (WIDTH, (i + 2) * WIDTH),
            f"{block}.res_connection.bias": (WIDTH,),
        }
        shapes |= {f"hydra_lm_head.{i}.weight": (VOCAB, WIDTH)}
    return random_tensors(shapes, 5)
