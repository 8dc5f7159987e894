"""EAGLE-1's layer as SafeAILab/EAGLE publishes it, and as the library speculators did."""

from __future__ import annotations

from ..drafting.eagle import EagleLayer
from .layer_config import LayerSizes, decoder_layer, read_sizes, read_windows, set_rotation
from .published_folder import EMBEDDING, LayerMapping, PublishedFolder
from .speculators import read_speculators

STEMS = ("model", "pytorch_model")


def convert_eagle(stored: PublishedFolder) -> EagleLayer:
    """EAGLE-1 and EAGLE-2, which have one layer: `fc` joins the embedding and the feature, in this order; `layers.0` is a
    Llama layer without its first norm. The names show whether `fc` and the queries, keys and values have biases. The
    embedding for its tokens may be in the file too.

    Names as in SafeAILab/EAGLE, eagle/model/cnets1.py.
    """
    qkv, biased = "layers.0.self_attn.q_proj.bias" in stored.shapes, "fc.bias" in stored.shapes
    stored.expect({"num_hidden_layers": (1,)})
    stored.expect({"bias": (biased,), "qkv_bias": (qkv,), "attention_bias": (qkv,), "mlp_bias": (False,)})
    return _read_layer(stored, read_sizes(stored), "fc", "layers.0", qkv)


def convert_speculators_eagle(stored: PublishedFolder) -> EagleLayer:
    """EAGLE-1 in the layout that speculators wrote until its version 0.3: `fusion_fc` and `transformer`.

    Names as in vllm-project/speculators, src/speculators/models/eagle.py.
    """
    read_speculators(stored)
    top, layer = stored.config, stored.layer
    stored.expect({"layernorms": (False,), "transformer_layer_architecture": ("LlamaDecoderLayer",)}, top)
    stored.expect({"num_hidden_layers": (1,), "mlp_bias": (False,)}, layer)
    qkv, biased = "transformer.self_attn.q_proj.bias" in stored.shapes, "fusion_fc.bias" in stored.shapes
    stored.expect({"fusion_bias": (biased,)}, top)
    stored.expect({"attention_bias": (qkv,)}, layer)
    return _read_layer(stored, read_sizes(stored), "fusion_fc", "transformer", qkv)


def _read_layer(stored: PublishedFolder, sizes: LayerSizes, fuse: str, place: str, qkv: bool) -> EagleLayer:
    """The net around the tensors: `fuse` and the layer `place`; qkv: queries, keys and values have biases."""
    d, biased = stored.spec.d_model, f"{fuse}.bias" in stored.shapes
    (window,) = read_windows(stored, 1)
    layers = [LayerMapping("fuse", fuse, (d, 2 * d), biased)]
    layers += decoder_layer(place, sizes.shape, d, qkv=qkv)
    tensors = stored.linear_tensors(layers, stored.embedding_shape)
    tensors["fuse.weight"] = tensors["fuse.weight"].roll(d, 1)  # [e; f] -> [f; e]
    shape = sizes.shape | dict(plain=1, unbiased=int(not biased), qkv_bias=int(qkv))
    if EMBEDDING in stored.shapes:
        shape |= {"own_embed": stored.spec.vocab}
        tensors |= {"own_embed": stored.take(EMBEDDING)}
    head = EagleLayer.from_tensors(shape, tensors)
    set_rotation(head, sizes.rope, [window])
    return head
