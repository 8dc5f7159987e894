"""EAGLE's layers as SafeAILab/EAGLE writes them: model.safetensors or pytorch_model.bin beside a config.json."""

from __future__ import annotations

import torch

from decodescope.engine.checkpoint.weights import Shape

from .attention import THETA
from .eagle import EagleLayer
from .eagle3 import DEEP, Eagle3Layer, fused_layers
from .stored import Layer, Stored

STEMS = ("model", "pytorch_model")
MOST = 1 << 16  # heads, width of the feed-forward block


def eagle(stored: Stored) -> EagleLayer:
    """EAGLE-1 and EAGLE-2, which have one layer: `fc` joins the embedding and the feature, in this order; `layers.0` is a
    Llama layer without its first norm. Whether `fc` and the queries, keys and values have biases is seen from the names. The
    target's embedding may lie in the file too; it was not trained, and is left there.

    Names as in SafeAILab/EAGLE, eagle/model/cnets1.py.
    """
    d, shape = stored.spec.d_model, _sizes(stored)
    biased, qkv = "fc.bias" in stored.shapes, "layers.0.self_attn.q_proj.bias" in stored.shapes
    layers = [Layer("fuse", "fc", (d, 2 * d), biased), *_layer("layers.0", shape, d, qkv)]
    tensors = stored.linear(layers, _embedding(stored))
    tensors["fuse.weight"] = tensors["fuse.weight"].roll(d, 1)  # [e; f] -> [f; e]
    return EagleLayer.around(shape | dict(plain=1, unbiased=int(not biased), qkv_bias=int(qkv)), tensors)


def eagle3(stored: Stored) -> Eagle3Layer:
    """EAGLE-3: `fc` joins the states of three layers, `midlayer` (`layers.0` in copies for servers) has norms for embedding and
    feature, `norm` and `lm_head` say the ids of the draft vocabulary, of which number i is the target's id i + d2t[i]. t2d
    marks the same ids; both may be left out where the draft vocabulary is the whole.

    Names as in SafeAILab/EAGLE, eagle/model/cnets.py and eagle/traineagle3/cnets.py.
    """
    spec, shape = stored.spec, _sizes(stored)
    d, vocab = spec.d_model, spec.vocab
    _same_layers(stored)
    kept = stored.number("draft_vocab_size", vocab, vocab)
    if kept < vocab and "d2t" not in stored.shapes:
        raise stored.refusal("has a draft vocabulary and does not say which ids these are (d2t); download it again.")
    middle = "layers.0" if "layers.0.hidden_norm.weight" in stored.shapes else "midlayer"
    norms = {"first": f"{middle}.input_layernorm", "second": f"{middle}.hidden_norm", "last": "norm"}
    layers = [Layer("fuse", "fc", (d, 3 * d), False), Layer("words.0", "lm_head", (kept, d), False)]
    layers += [*_layer(middle, shape, 2 * d), *(Layer(ours, theirs, (d,), False) for ours, theirs in norms.items())]
    tensors = stored.linear(layers, {**_embedding(stored), "d2t": (kept,), "t2d": (vocab,)})
    ids = torch.arange(kept)
    if "d2t" in stored.shapes:
        ids = ids + stored.whole("d2t")
    if not ((ids >= 0) & (ids < vocab)).all() or len(ids.unique()) < kept:
        raise stored.refusal(f"maps its draft vocabulary to ids that {spec.name} does not have, or to one twice (d2t).")
    mask = torch.zeros(vocab).index_fill_(0, ids, 1.0)
    if "t2d" in stored.shapes and not torch.equal(stored.whole("t2d") != 0, mask != 0):
        raise stored.refusal("has two lists of its draft vocabulary that differ (d2t, t2d); download it again.")
    tensors["words.0.weight"] = tensors["words.0.weight"][ids.argsort()]  # our rows stand by id
    return Eagle3Layer.around(shape | dict(vocab=vocab, kept=kept, own=1), tensors | {"mask": mask})


def _sizes(stored: Stored) -> dict[str, int]:
    """What config.json says of the layer, as far as both kinds have it."""
    config, d = stored.config, stored.spec.d_model
    if stored.number("hidden_size", d, MOST) != d:
        raise stored.refusal(
            f"reads states of width {config['hidden_size']}, those of {stored.spec.name} have {d}; give another."
        )
    if config.get("hidden_act", "silu") != "silu" or config.get("rope_scaling") is not None:
        raise stored.refusal("has an activation other than silu or a scaled rotation (its config.json), which are not read.")
    n_heads = stored.number("num_attention_heads", stored.spec.n_heads, MOST)
    n_kv_heads = stored.number("num_key_value_heads", n_heads, MOST)
    if config.get("num_key_value_heads", 0) is None:
        n_kv_heads = n_heads
    head_dim = stored.number("head_dim", d // max(n_heads, 1), MOST)
    if not n_heads or not n_kv_heads or n_heads % n_kv_heads or not head_dim or head_dim % 2:
        raise stored.refusal("has numbers of heads that do not go into each other (num_attention_heads, num_key_value_heads).")
    d_ff = stored.number("intermediate_size", 4 * d, MOST)
    return dict(d=d, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, d_ff=d_ff) | dict(
        theta=round(_real(stored, "rope_theta", THETA, 1e12)), eps=round(_real(stored, "rms_norm_eps", 1e-6, 1.0) * 1e9)
    )


def _real(stored: Stored, name: str, usual: float, most: float) -> float:
    """A number of the config above 0 and up to `most`."""
    x = stored.config.get(name, usual)
    if isinstance(x, bool) or not isinstance(x, int | float) or not 0 < x <= most:
        raise stored.refusal(f"says {name} = {str(x)[:40]}, which must be a number above 0 and up to {most:g}.")
    return float(x)


def _layer(place: str, shape: dict[str, int], width: int, bias: bool = False) -> list[Layer]:
    """A decoder layer without the norms before its attention, which reads states of this `width`; bias: of queries, keys and
    values."""
    d, q, kv, f = shape["d"], shape["n_heads"] * shape["head_dim"], shape["n_kv_heads"] * shape["head_dim"], shape["d_ff"]
    heads = {"q": q, "k": kv, "v": kv}
    layers = [Layer(f"attention.{x}", f"{place}.self_attn.{x}_proj", (n, width), bias) for x, n in heads.items()]
    layers.append(Layer("attention.out", f"{place}.self_attn.o_proj", (d, q), False))
    ffn = {"gate": (f, d), "up": (f, d), "down": (d, f)}
    layers += [Layer(f"block.{x}", f"{place}.mlp.{x}_proj", size, False) for x, size in ffn.items()]
    return [*layers, Layer("block.norm", f"{place}.post_attention_layernorm", (d,), False)]


def _embedding(stored: Stored) -> dict[str, Shape]:
    """What may lie in the file and is not read."""
    return {"embed_tokens.weight": (stored.spec.vocab, stored.spec.d_model)}


def _same_layers(stored: Stored) -> None:
    """LoadError if it reads other layers of the target than we hand over."""
    spec = stored.spec
    if spec.n_layers < DEEP:
        raise stored.refusal(
            f"reads layers by a rule for {DEEP} layers and more, {spec.name} has {spec.n_layers}; give an EAGLE-1 layer."
        )
    nested = stored.config.get("eagle_config")
    said = (nested if isinstance(nested, dict) else stored.config).get("eagle_aux_hidden_state_layer_ids")
    if said is not None and said != list(fused_layers(spec.n_layers)):
        raise stored.refusal(
            f"reads the layers {str(said)[:40]} of its target; only {list(fused_layers(spec.n_layers))} can be read."
        )
