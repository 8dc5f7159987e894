"""EAGLE's layers in the format of SafeAILab/EAGLE: model.safetensors or pytorch_model.bin next to a config.json."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.spec import Rope

from ...checkpoint.config import quantisation_key, read_rope
from ...checkpoint.folder import escape_unprintable
from ...checkpoint.weights import Shape
from ..drafting.attention import THETA
from ..drafting.eagle import EagleLayer
from ..drafting.eagle3 import DEEP, Eagle3Layer, fused_layers
from .published_folder import LayerMapping, PublishedFolder

STEMS = ("model", "pytorch_model")
MOST = 1 << 16  # heads, width of the feed-forward block
EMBEDDING = "embed_tokens.weight"
# Key of config.json -> the values that the net computes; null and silence mean the first.
PLAIN: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "is_causal": (True,),
    "logit_scale": (1, 1.0),
    "mlp_bias": (False,),
    "model_type": (
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
    ),  # all of one form: what differs shows in the names of the tensors
    "num_hidden_layers": (1,),
    "position_embedding_type": ("rope",),
}
# The same for EAGLE-3, at the top or in the table eagle_config, where NVIDIA's Model-Optimizer writes them.
PLAIN3: dict[str, tuple[Any, ...]] = {
    "has_lm_head": (True,),
    "next_layer_regular": (True,),
    "parallel_draft_heads_num_layers": (0, 1),  # of further heads, which are not there with one step
    "parallel_draft_step": (1,),
    "use_aux_hidden_state": (True,),
    "use_input_layernorm_in_first_layer": (True,),
    "use_last_layernorm": (True,),
    "use_mtp_layernorm": (False,),
}
NORMS = (
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
)  # keys that vLLM reads too; see Eagle3Layer
LAYER_IDS = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", "target_layer_ids")


def convert_eagle(stored: PublishedFolder) -> EagleLayer:
    """EAGLE-1 and EAGLE-2, which have one layer: `fc` joins the embedding and the feature, in this order; `layers.0` is a
    Llama layer without its first norm. The names show whether `fc` and the queries, keys and values have biases. The
    embedding for its tokens may be in the file too.

    Names as in SafeAILab/EAGLE, eagle/model/cnets1.py.
    """
    d, (shape, rope) = stored.spec.d_model, _sizes(stored)
    biased, qkv = "fc.bias" in stored.shapes, "layers.0.self_attn.q_proj.bias" in stored.shapes
    stored.expect({"bias": (biased,), "qkv_bias": (qkv,), "attention_bias": (qkv,)})
    layers = [LayerMapping("fuse", "fc", (d, 2 * d), biased), *_layer("layers.0", shape, d, qkv)]
    tensors = stored.linear_tensors(layers, _embedding(stored))
    tensors["fuse.weight"] = tensors["fuse.weight"].roll(d, 1)  # [e; f] -> [f; e]
    shape |= dict(plain=1, unbiased=int(not biased), qkv_bias=int(qkv))
    head = EagleLayer.from_tensors(*_with_embedding(stored, shape, tensors))
    head.attention.rope = rope
    return head


def convert_eagle3(stored: PublishedFolder) -> Eagle3Layer:
    """EAGLE-3: `fc` joins the states of three layers. `midlayer` (`layers.0` in copies for servers) has norms for embedding
    and feature. `norm` and `lm_head` output the ids of the draft vocabulary; number i of it is the target's id i + d2t[i]. t2d
    marks the same ids; both may be left out if the draft vocabulary is the whole. With norm_before_fc there is `input_norm`,
    with fc_norm `fc_norm.0` to `fc_norm.2`. The embedding for its tokens may be in the file too.

    Names as in SafeAILab/EAGLE, eagle/model/cnets.py and eagle/traineagle3/cnets.py; the further norms as in vLLM,
    vllm/model_executor/models/llama_eagle3.py.
    """
    d = stored.spec.d_model
    vocab = stored.spec.vocab
    shape, rope = _sizes(stored)
    _same_layers(stored)
    shape |= _norms(stored)
    stored.expect(PLAIN3 | {"attention_bias": (False,), "target_hidden_size": (d,)})
    stored.expect(PLAIN3, stored.table("eagle_config"))
    if stored.flag("tie_word_embeddings"):
        what = f"The config.json of {stored.folder} gives tie_word_embeddings = true"
        stored.remarks.append(
            escape_unprintable(f"{what}, its file of weights has lm_head.weight: the file counts.")
        )
    kept = stored.number("draft_vocab_size", vocab, vocab)
    if kept < vocab and "d2t" not in stored.shapes:
        raise stored.refusal(
            "has a draft vocabulary and does not say which ids these are (d2t); download it again."
        )
    middle = "layers.0" if "layers.0.hidden_norm.weight" in stored.shapes else "midlayer"
    norms = {"first": f"{middle}.input_layernorm", "second": f"{middle}.hidden_norm", "last": "norm"}
    layers = [
        LayerMapping("fuse", "fc", (d, 3 * d), False),
        LayerMapping("words.0", "lm_head", (kept, d), False),
    ]
    layers += [
        *_layer(middle, shape, 2 * d),
        *(LayerMapping(ours, theirs, (d,), False) for ours, theirs in norms.items()),
    ]
    layers += [LayerMapping("input_norm", "input_norm", (3 * d,), False)] if shape["norm_before_fc"] else []
    layers += (
        [LayerMapping(f"state_norms.{i}", f"fc_norm.{i}", (d,), False) for i in range(3)]
        if shape["fc_norm"]
        else []
    )
    tensors = stored.linear_tensors(layers, {**_embedding(stored), "d2t": (kept,), "t2d": (vocab,)})
    if shape["fc_norm"]:
        tensors["state_norms"] = torch.stack([tensors.pop(f"state_norms.{i}") for i in range(3)])
    ids = _draft_ids(stored, kept)
    tensors["words.0.weight"] = tensors["words.0.weight"][ids.argsort()]  # our rows are sorted by id
    tensors["mask"] = torch.zeros(vocab).index_fill_(0, ids, 1.0)
    head = Eagle3Layer.from_tensors(
        *_with_embedding(stored, shape | dict(vocab=vocab, kept=kept, own=1), tensors)
    )
    head.attention.rope = rope
    return head


def _draft_ids(stored: PublishedFolder, kept: int) -> Tensor:
    """int64 [kept]: the target's ids of the draft vocabulary, in the order of its rows."""
    spec, ids = stored.spec, torch.arange(kept)
    if "d2t" in stored.shapes:
        ids = ids + stored.take_integers("d2t")
    if not ((ids >= 0) & (ids < spec.vocab)).all() or len(ids.unique()) < kept:
        raise stored.refusal(
            f"maps its draft vocabulary to ids that {spec.name} does not have, or to one twice (d2t)."
        )
    if "t2d" in stored.shapes:
        marked = stored.take_integers("t2d").nonzero()[:, 0]
        if not torch.equal(marked, ids.sort().values):
            raise stored.refusal(
                "has two lists of its draft vocabulary that differ (d2t, t2d); download it again."
            )
    return ids


def _sizes(stored: PublishedFolder) -> tuple[dict[str, int], Rope]:
    """The sizes of the layer in config.json, as far as both kinds have them, and its rotation."""
    config = stored.config
    d = stored.spec.d_model
    spec = stored.spec
    if stored.number("hidden_size", d, MOST) != d:
        what = f"reads states of width {config['hidden_size']} (hidden_size)"
        raise stored.refusal(f"{what}, those of {spec.name} have {d}; give another.")
    if (size := stored.number("vocab_size", spec.vocab, 1 << 24)) != spec.vocab:
        what = f"was made for a vocabulary of {size} ids (vocab_size)"
        raise stored.refusal(f"{what}, {spec.name} has {spec.vocab}; give another.")
    if (key := quantisation_key(config)) is not None:
        raise stored.refusal(f"is quantised ({key}), which cannot be read; give the layer in a float type.")
    stored.expect(PLAIN)
    _no_window(stored)
    n_heads = stored.number("num_attention_heads", spec.n_heads, MOST)
    n_kv_heads = stored.number("num_key_value_heads", n_heads, MOST)
    head_dim = stored.number("head_dim", d // max(n_heads, 1), MOST)
    if not n_heads or not n_kv_heads or n_heads % n_kv_heads or not head_dim or head_dim % 2:
        raise stored.refusal(
            "has numbers of heads that do not go into each other (num_attention_heads, num_key_value_heads)."
        )
    rope = read_rope(config, str(stored.folder), float(THETA), head_dim, _positions(stored))
    eps = stored.positive_number("rms_norm_eps", 1e-6, 1.0) * 1e9
    if abs(round(eps) - eps) > 1e-3 * eps:
        raise stored.refusal(
            f"says rms_norm_eps = {config['rms_norm_eps']}, which must be a multiple of 1e-9."
        )
    sizes = dict(d=d, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim)
    sizes |= dict(
        d_ff=stored.number("intermediate_size", 4 * d, MOST), theta=max(1, round(rope.theta)), eps=round(eps)
    )
    return sizes, rope


def _positions(stored: PublishedFolder) -> int:
    """The positions that the layer was trained for, with a remark where the target reads more."""
    most = stored.spec.max_positions
    positions = stored.number("max_position_embeddings", most, 1 << 24)
    if positions < most:
        what = f"{stored.folder} was trained for {positions} positions (max_position_embeddings), {stored.spec.name} reads"
        stored.remarks.append(
            escape_unprintable(f"{what} {most}: beyond {positions} its guesses may be worse.")
        )
    return max(positions, 1)


def _no_window(stored: PublishedFolder) -> None:
    """LoadError if the layer sees a window of the text: ours sees all of it."""
    config = stored.config
    types, window = config.get("layer_types"), config.get("sliding_window")
    # Qwen's configs say so
    uses = stored.flag("use_sliding_window", not str(config.get("model_type")).startswith("qwen"))
    config.skip("max_window_layers")
    if types not in (None, ["full_attention"]) or (window is not None and types is None and uses):
        raise stored.refusal(
            "sees a window of the text (sliding_window, layer_types), and only whole texts can be read."
        )


def _norms(stored: PublishedFolder) -> dict[str, int]:
    """The further norms of an EAGLE-3 layer; the table eagle_config wins over the same key at the top, as in vLLM."""
    nested = stored.table("eagle_config")
    flags = {key: stored.flag(key, stored.flag(key), nested) for key in NORMS}
    if flags["norm_before_fc"] and flags["fc_norm"]:
        raise stored.refusal(
            "says norm_before_fc and fc_norm, of which only one can be true; download it again."
        )
    return {key: int(x) for key, x in flags.items()}


def _layer(place: str, shape: dict[str, int], width: int, bias: bool = False) -> list[LayerMapping]:
    """A decoder layer without the norms before its attention, which reads states of this `width`; bias: of queries, keys and
    values."""
    d = shape["d"]
    q = shape["n_heads"] * shape["head_dim"]
    kv = shape["n_kv_heads"] * shape["head_dim"]
    f = shape["d_ff"]
    heads = {"q": q, "k": kv, "v": kv}
    layers = [
        LayerMapping(f"attention.{x}", f"{place}.self_attn.{x}_proj", (n, width), bias)
        for x, n in heads.items()
    ]
    layers.append(LayerMapping("attention.out", f"{place}.self_attn.o_proj", (d, q), False))
    ffn = {"gate": (f, d), "up": (f, d), "down": (d, f)}
    layers += [LayerMapping(f"block.{x}", f"{place}.mlp.{x}_proj", size, False) for x, size in ffn.items()]
    return [*layers, LayerMapping("block.norm", f"{place}.post_attention_layernorm", (d,), False)]


def _embedding(stored: PublishedFolder) -> dict[str, Shape]:
    """The tensor of an own embedding, which may be in the file."""
    return {EMBEDDING: (stored.spec.vocab, stored.spec.d_model)}


def _with_embedding(
    stored: PublishedFolder, shape: dict[str, int], tensors: dict[str, Tensor]
) -> tuple[dict[str, int], dict[str, Tensor]]:
    """Shape and tensors with those of the embedding in the file, if there is one."""
    if EMBEDDING not in stored.shapes:
        return shape, tensors
    return shape | {"own_embed": stored.spec.vocab}, tensors | {"own_embed": stored.take(EMBEDDING)}


def _same_layers(stored: PublishedFolder) -> None:
    """LoadError if it reads other layers of the target than we hand over, wherever its config names them."""
    spec = stored.spec
    if spec.n_layers < DEEP:
        raise stored.refusal(
            f"reads layers by a rule for {DEEP} layers and more, {spec.name} has {spec.n_layers}; give an EAGLE-1 layer."
        )
    ours = list(fused_layers(spec.n_layers))
    for key, ids in stored.config.find(LAYER_IDS):
        if ids in (None, [], ours):  # an empty list means the usual ones
            continue
        way = "give another"
        if isinstance(ids, list) and all(type(x) is int for x in ids) and [x + 1 for x in ids] == ours:
            way = "if these ids count the outputs of layers, as SGLang's do, add 1 to each in config.json"
        raise stored.refusal(
            f"reads the layers {str(ids)[:40]} of its target ({key}); only {ours} can be read, so {way}."
        )
