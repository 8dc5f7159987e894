"""Small GGUF files for tests, written by the package `gguf` as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from torch import Tensor

from decodescope.engine.decoding.bases.weights import MatrixPlace, replace_matrices
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.gguf_matrix import GgufMatrix
from decodescope.engine.model.layers.matrix import unpack

PAIRED = ("llama", "smollm3")  # architectures whose rows of q and k are reordered
Put = Callable[[str, Any], None]


def write_metadata(writer: gguf.GGUFWriter, entries: Mapping[str, Any]) -> None:
    """Write numbers, strings and lists."""
    for key, value in entries.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)


def reorder_pairs(x: Tensor, heads: int) -> Tensor:
    """Rows as convert_hf_to_gguf.py permutes those of q and k."""
    return x.view(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).transpose(1, 2).reshape(x.shape)


def convert_model(model: Any, architecture: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Metadata, without the architecture before its keys, and tensors of a model of transformers."""
    config = model.config
    state = {x: y.detach().clone() for x, y in model.state_dict().items()}
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    ropes = config.rope_parameters
    rope = ropes.get("full_attention", ropes)
    said: dict[str, Any] = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": int(dim * rope.get("partial_rotary_factor", 1.0)),
        "attention.key_length": dim,
        "attention.value_length": dim,
        "vocab_size": config.vocab_size,
    }
    if rope["rope_type"] in ("linear", "yarn"):
        said |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": float(rope["factor"])}
    if rope["rope_type"] == "yarn":
        said["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        said["rope.scaling.yarn_beta_fast"] = float(rope.get("beta_fast", 32.0))
    windowed = architecture.startswith("gemma") or architecture in ("phi3", "llama")
    if windowed and getattr(config, "sliding_window", None):
        said["attention.sliding_window"] = config.sliding_window
    if architecture == "gemma2":
        said["attn_logit_softcapping"] = config.attn_logit_softcapping
        said["final_logit_softcapping"] = config.final_logit_softcapping
    names = gguf.get_tensor_name_map(
        next(x for x, y in gguf.MODEL_ARCH_NAMES.items() if y == architecture), config.num_hidden_layers
    )
    tensors: dict[str, Tensor] = {}
    for name, x in state.items():
        if architecture in PAIRED and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            x = reorder_pairs(x, heads)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            x = x + 1
        tensors[names.get_name(name, (".weight", ".bias"))] = x
    if rope["rope_type"] == "longrope":
        said["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        said["rope.scaling.attn_factor"] = float(model.model.rotary_emb.attention_scaling)
        tensors |= {f"rope_factors_{x}.weight": torch.tensor(rope[f"{x}_factor"]) for x in ("long", "short")}
    if rope["rope_type"] == "llama3":
        plain = 1.0 / rope["rope_theta"] ** (torch.arange(0, dim, 2).float() / dim)
        tensors["rope_freqs.weight"] = plain / model.model.rotary_emb.inv_freq
    return said, tensors


def write_gguf(
    path: Path,
    architecture: str,
    said: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    kind: Kind = Kind.F32,
    embedding: Kind | None = None,
    **more: Any,
) -> Path:
    """Write a file whose matrices have the type `kind`, its embedding `embedding`; more: metadata, with __ for a dot."""
    writer = gguf.GGUFWriter(path, architecture)
    write_metadata(writer, {f"{architecture}.{key}": x for key, x in said.items()})
    write_metadata(writer, {key.replace("__", "."): x for key, x in more.items()})
    for name, x in tensors.items():
        numbers = x.float().numpy()
        own = embedding if embedding is not None and name == "token_embd.weight" else kind
        if numbers.ndim < 2 or own == Kind.F32:
            writer.add_tensor(name, numbers)
        else:
            writer.add_tensor(name, gguf.quants.quantize(numbers, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_blocks(kind: Kind, rows: int, width: int) -> np.ndarray[Any, Any]:
    """Random bytes [rows, bytes of a row] of a type, with finite numbers: where they are not, the bytes are drawn again."""
    run, size = gguf.GGML_QUANT_SIZES[kind]
    draw = np.random.default_rng(int(kind))
    blocks = np.zeros((rows * width // run, size), np.uint8)
    left = np.arange(len(blocks))
    while len(left):
        blocks[left] = draw.integers(0, 256, (len(left), size), dtype=np.uint8)
        with np.errstate(invalid="ignore", over="ignore"):
            numbers = gguf.quants.dequantize(blocks[left], kind)
        left = left[~(np.abs(numbers) < 100).all(-1)]
    return blocks.reshape(rows, -1)


def write_decoder(path: Path, decoder: Decoder, kind: Kind, **more: Any) -> Path:
    """Write a toy of the family llama, its matrices in the type `kind`; more: metadata, with __ for a dot."""
    s = decoder.spec
    q, k = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim
    tensors = {
        "token_embd.weight": decoder.embed,
        "output_norm.weight": decoder.norm,
        "output.weight": decoder.head,
    }
    for i, layer in enumerate(decoder.layers):
        queries, keys, values = layer.qkv.split([q, k, k])
        gate, up = layer.gate_up.chunk(2)
        parts = {
            "attn_norm": layer.attn_norm,
            "attn_q": reorder_pairs(queries, s.n_heads),
            "attn_k": reorder_pairs(keys, s.n_kv_heads),
            "attn_v": values,
            "attn_output": layer.out,
            "ffn_norm": layer.mlp_norm,
            "ffn_gate": gate,
            "ffn_up": up,
            "ffn_down": layer.down,
        }
        tensors |= {f"blk.{i}.{name}.weight": x for name, x in parts.items()}
    said = {
        "block_count": s.n_layers,
        "context_length": s.max_positions,
        "embedding_length": s.d_model,
        "feed_forward_length": s.d_ff,
        "attention.head_count": s.n_heads,
        "attention.head_count_kv": s.n_kv_heads,
        "attention.layer_norm_rms_epsilon": s.norm_eps,
    }
    return write_gguf(path, "llama", said, tensors, kind, **more)


def pack_decoder(decoder: Decoder, kind: Kind = Kind.Q8_0) -> Decoder:
    """The toy with all its matrices, the head's too, in rows of a type that the kernels multiply as they are."""

    def packed(_: MatrixPlace, weight: Tensor) -> Tensor:
        rows = gguf.quants.quantize(unpack(weight).float().numpy(), kind)
        return GgufMatrix.from_rows(torch.from_numpy(rows), kind.name, weight.dtype)

    return replace_matrices(decoder, packed, head=True)


def unpack_decoder(decoder: Decoder) -> Decoder:
    """The toy with the numbers of its packed matrices as plain rows."""
    return replace_matrices(decoder, lambda _, weight: unpack(weight), head=True)
