"""Hydra's heads as zankner/Hydra writes them: hydra_lm_head.pt."""

from __future__ import annotations

import torch

from ..drafting.hydra import HydraHeads
from .published_folder import LayerMapping, PublishedFolder

MOST = 16  # heads, and blocks of a head
PREFIX = "prefix_embeding_layer"  # the authors' spelling
EMBEDDING = "input_embed_fn"


def convert_hydra(stored: PublishedFolder) -> HydraHeads:
    """Names: `hydra_mlp.k.j.linear` is block j of head k, `hydra_mlp.k.0.res_connection` the learnt skip path of the first,
    `hydra_lm_head.k` its own vocabulary matrix; without one the target's unembedding serves. In Hydra++
    (hydra_head_arch is prefix-mlp) every layer comes after a dropout, so block j is called 2 j + 1 and the
    vocabulary matrix `hydra_lm_head.k.1`. There `prefix_embeding_layer` is a Llama model of one layer. The embedding for the
    heads' tokens may be in the file too (`input_embed_fn`).

    Names as in zankner/Hydra, hydra/model/hydra_heads/mlp_head.py and prefix_mlp_head.py, hydra/model/hydra_model.py.
    """
    arch = _head_form(stored)
    plus = arch == "prefix-mlp"
    shapes = stored.shapes
    d = stored.spec.d_model
    vocab = stored.spec.vocab
    stored.config.agree("hidden_act", "silu")
    stored.expect({"hidden_size": (d,), "vocab_size": (vocab,), "grounded_heads": (True,)})
    if not _has_block(stored, _block_name(plus, 0, 0)):
        what = f"names no Hydra heads of the form {arch} (hydra_head_arch) in its weights"
        raise stored.refusal(f"{what} ({_block_name(plus, 0, 0)}.linear); download it again.")
    heads = next((k for k in range(MOST) if not _has_block(stored, _block_name(plus, k, 0))), MOST)
    if f"{_block_name(plus, 0, 0)}.res_connection.weight" not in shapes:
        raise stored.refusal(
            "holds heads that read no drafted tokens (grounded_heads is false); give grounded Hydra heads."
        )
    there = next((j for j in range(1, MOST) if not _has_block(stored, _block_name(plus, 0, j))), MOST)
    layers = max(there, stored.number("hydra_num_layers", there, MOST)) if there > 1 else 1
    word = "hydra_lm_head.{}.1" if plus else "hydra_lm_head.{}"
    own = f"{word.format(0)}.weight" in shapes
    parts = []
    for k in range(heads):
        first, wide = _block_name(plus, k, 0), (d, (k + 2) * d)
        parts += [
            LayerMapping(f"up.{k}", f"{first}.linear", wide),
            LayerMapping(f"skip.{k}", f"{first}.res_connection", wide),
        ]
        for j, block in enumerate(
            stored.repeated_names([f"{_block_name(plus, k, j)}.linear" for j in range(1, layers)])
        ):
            parts.append(LayerMapping(f"more.{k * (layers - 1) + j}", block, (d, d)))
        if own:
            parts.append(
                LayerMapping(f"words.{k}", word.format(k), (vocab, d), f"{word.format(k)}.bias" in shapes)
            )
    shape = dict(d=d, heads=heads, layers=layers, vocab=vocab if own else 0, learnt=1, plain=1)
    if plus:
        parts += _prefix(stored)
        s = stored.spec
        shape |= dict(prefix=s.d_ff, n_heads=s.n_heads, n_kv_heads=s.n_kv_heads, head_dim=s.head_dim)
        shape |= dict(theta=round(s.rope.theta), eps=round(s.norm_eps * 1e9))
    # a Llama model has an embedding; its layer is fed with features, so the authors' code never looks into it
    spare = (EMBEDDING, *([f"{PREFIX}.embed_tokens"] if plus else []))
    tensors = stored.linear_tensors(parts, {f"{x}.weight": (vocab, d) for x in spare})
    if own:
        tensors = {f"words.{k}.bias": torch.zeros(vocab) for k in range(heads)} | tensors
    if f"{EMBEDDING}.weight" in shapes:
        tensors["own_embed"], shape["own_embed"] = stored.take(f"{EMBEDDING}.weight"), vocab
    stored.remark_mismatch("hydra_num_heads", heads)
    stored.remark_mismatch("hydra_num_layers", layers)
    return HydraHeads.from_tensors(shape, tensors)


def _head_form(stored: PublishedFolder) -> str:
    """The form of the heads, mlp or prefix-mlp; raises LoadError for one that cannot be read."""
    arch = stored.config.get("hydra_head_arch", "mlp")
    if arch not in ("mlp", "prefix-mlp"):
        what = f"holds Hydra heads of the form {str(arch)[:40]!r} (hydra_head_arch)"
        raise stored.refusal(f"{what}; mlp and prefix-mlp can be read.")
    if stored.number("hidden_state_offset", 0, 1000):
        raise stored.refusal(
            "holds Hydra heads that read an earlier layer (hidden_state_offset); only the last can be read."
        )
    return str(arch)


def _has_block(stored: PublishedFolder, block: str) -> bool:
    return f"{block}.linear.weight" in stored.shapes


def _block_name(plus: bool, k: int, j: int) -> str:
    return f"hydra_mlp.{k}.{2 * j + 1 if plus else j}"


def _prefix(stored: PublishedFolder) -> list[LayerMapping]:
    """The tensors of Hydra++'s layer, which is one of the target: as wide, with as many heads, rotated alike."""
    s = stored.spec
    if s.family != "llama" or s.rope.kind != "default" or s.qkv_bias or s.out_bias or s.mlp_bias:
        raise stored.refusal(
            f"has a layer as in plain Llama models before its heads, and {s.name} is none; give other heads."
        )
    d = s.d_model
    q = s.n_heads * s.head_dim
    kv = s.n_kv_heads * s.head_dim
    attention = {
        "q": ("q_proj", (q, d)),
        "k": ("k_proj", (kv, d)),
        "v": ("v_proj", (kv, d)),
        "out": ("o_proj", (d, q)),
    }
    ffn = {"gate": (s.d_ff, d), "up": (s.d_ff, d), "down": (d, s.d_ff)}
    norms = {
        "first": "layers.0.input_layernorm",
        "block.norm": "layers.0.post_attention_layernorm",
        "last": "norm",
    }
    parts = [
        (f"attention.{x}", f"layers.0.self_attn.{name}", shape) for x, (name, shape) in attention.items()
    ]
    parts += [(f"block.{x}", f"layers.0.mlp.{x}_proj", shape) for x, shape in ffn.items()]
    layers = [
        LayerMapping(f"prefix.{ours}", f"{PREFIX}.{theirs}", shape, bias=False)
        for ours, theirs, shape in parts
    ]
    return layers + [
        LayerMapping(f"prefix.{ours}", f"{PREFIX}.{theirs}", (d,), bias=False)
        for ours, theirs in norms.items()
    ]
