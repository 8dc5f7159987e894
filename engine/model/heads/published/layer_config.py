"""The decoder layer of a published EAGLE head: its sizes, rotation, windows and tensors, from the words of a model's config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decodescope.engine.core.spec import Rope

from ...checkpoint.config import quantisation_key, read_rope
from ...checkpoint.folder import escape_unprintable
from ...checkpoint.keys import Config
from ..base import Head, RotaryPart
from ..drafting.attention import THETA
from .published_folder import LayerMapping, PublishedFolder

MOST = 1 << 16  # heads, width of the feed-forward block
MOST_LAYERS = 16
# Key of config.json -> the values that the net computes; null and silence mean the first.
PLAIN: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "is_causal": (True,),
    "logit_scale": (1, 1.0),
    # all of one form: what differs shows in the names of the tensors
    "model_type": ("llama", "mistral", "qwen2", "qwen3"),
    "position_embedding_type": ("rope",),
}
# model_type -> what transformers' class of the config says where the config is silent, for configs that keep only what differs
CLASS_DEFAULTS: dict[str, dict[str, int]] = {
    "llama": dict(
        vocab_size=32_000, hidden_size=4096, intermediate_size=11_008, num_hidden_layers=32, num_attention_heads=32,
        max_position_embeddings=2048,
    ),
    "qwen3": dict(
        vocab_size=151_936, hidden_size=4096, intermediate_size=22_016, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=32, head_dim=128, max_position_embeddings=32_768,
    ),
}  # fmt: skip
# tokens, where a Qwen config says use_sliding_window and nothing of its length
QWEN_WINDOW = 4096
FEW_WINDOWED = (
    28  # layers below the first one with a window, where a Qwen config says nothing (max_window_layers)
)


@dataclass(frozen=True)
class LayerSizes:
    """The sizes of a layer, by the names of our nets, and its rotation."""

    shape: dict[str, int]
    rope: Rope


def class_defaults(stored: PublishedFolder) -> dict[str, int]:
    """Key of the layer's config -> its value where the config is silent. Empty in the authors' layouts, which say all."""
    if stored.layer is stored.config:
        return {}
    return CLASS_DEFAULTS.get(stored.family, {})


def read_sizes(stored: PublishedFolder, plain: Mapping[str, Sequence[Any]] = PLAIN) -> LayerSizes:
    """The sizes of the layer in its config, as far as all kinds have them, and its rotation. plain: the values that the net
    computes, by key."""
    config, spec = stored.layer, stored.spec
    silent = class_defaults(stored)
    d = spec.d_model
    width = stored.number("hidden_size", silent.get("hidden_size", d), MOST, config)
    if width != d:
        raise stored.refusal(
            f"reads states of width {width} (hidden_size), those of {spec.name} have {d}; give another."
        )
    if (
        size := stored.number("vocab_size", silent.get("vocab_size", spec.vocab), 1 << 24, config)
    ) != spec.vocab:
        what = f"was made for a vocabulary of {size} ids (vocab_size)"
        raise stored.refusal(f"{what}, {spec.name} has {spec.vocab}; give another.")
    for table in (stored.config, config):
        if (key := quantisation_key(table)) is not None:
            raise stored.refusal(
                f"is quantised ({key}), which cannot be read; give the layer in a float type."
            )
    stored.expect(plain, config)
    n_heads = stored.number(
        "num_attention_heads", silent.get("num_attention_heads", spec.n_heads), MOST, config
    )
    n_kv_heads = stored.number(
        "num_key_value_heads", silent.get("num_key_value_heads", n_heads), MOST, config
    )
    head_dim = stored.number("head_dim", silent.get("head_dim", d // max(n_heads, 1)), MOST, config)
    if not n_heads or not n_kv_heads or n_heads % n_kv_heads or not head_dim or head_dim % 2:
        raise stored.refusal(
            "has numbers of heads that do not go into each other (num_attention_heads, num_key_value_heads)."
        )
    rope = _read_rotation(stored, head_dim, _positions(stored, silent))
    eps = stored.positive_number("rms_norm_eps", 1e-6, 1.0, config) * 1e9
    if abs(round(eps) - eps) > 1e-3 * eps:
        raise stored.refusal(
            f"says rms_norm_eps = {config['rms_norm_eps']}, which must be a multiple of 1e-9."
        )
    d_ff = stored.number("intermediate_size", silent.get("intermediate_size", 4 * d), MOST, config)
    sizes = dict(d=d, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, d_ff=d_ff)
    return LayerSizes(sizes | dict(theta=max(1, round(rope.theta)), eps=round(eps)), rope)


def _read_rotation(stored: PublishedFolder, head_dim: int, positions: int) -> Rope:
    """The rotation. Of a table for each type of layer that of `sliding_attention` counts for all, as in speculators."""
    config, name = stored.layer, str(stored.folder)
    tables = config.get("rope_parameters")
    if isinstance(tables, Config) and isinstance(one := tables.get("sliding_attention"), Config):
        joined = Config({"rope_parameters": one.entries}, f"{one.place}")
        config.join(joined)
        return read_rope(joined, name, float(THETA), head_dim, positions, partial=True)
    return read_rope(config, name, float(THETA), head_dim, positions, partial=True)


def _positions(stored: PublishedFolder, silent: dict[str, int]) -> int:
    """The positions that the layer was trained for, with a remark where the target reads more."""
    most = stored.spec.max_positions
    usual = silent.get("max_position_embeddings", most)
    positions = stored.number("max_position_embeddings", usual, 1 << 24, stored.layer)
    if positions < most:
        what = f"{stored.folder} was trained for {positions} positions (max_position_embeddings), {stored.spec.name} reads"
        stored.remarks.append(
            escape_unprintable(f"{what} {most}: beyond {positions} its guesses may be worse.")
        )
    return max(positions, 1)


def read_windows(stored: PublishedFolder, layers: int) -> list[int]:
    """The window of each layer, 0 where it sees the whole text, as transformers' class of the config and vLLM read them.

    layer_types says which layers have one. Where it is silent, Mistral's all have, Qwen's those from max_window_layers on if
    use_sliding_window is true, and Llama's none, whatever sliding_window says.
    """
    config = stored.layer
    family, types = stored.family, config.get("layer_types")
    qwen = family.startswith(("qwen", "mimo"))  # MiMo's config is Qwen 2's
    silent = qwen and "sliding_window" not in config and config.get("use_sliding_window") is True
    window = stored.number("sliding_window", QWEN_WINDOW if silent else 0, 1 << 24, config)
    used, first = True, FEW_WINDOWED
    if not window or not qwen or types is not None:
        config.skip("max_window_layers")
    else:
        first = stored.number("max_window_layers", FEW_WINDOWED, 1 << 24, config)
    if not window:
        config.skip("use_sliding_window")
    elif qwen:
        used = stored.flag("use_sliding_window", False, config)
    if types is None:
        sliding = [family == "mistral" or (qwen and i >= first) for i in range(layers)]
    else:
        if (
            not isinstance(types, list)
            or len(types) < layers
            or not set(map(str, types)) <= {"full_attention", "sliding_attention"}
        ):
            raise stored.refusal(
                f"says layer_types = {str(types)[:60]}, which must name full_attention or sliding_attention for each of its "
                f"{layers} layers; download it again."
            )
        sliding = [x == "sliding_attention" for x in types[:layers]]
    windows = [window if x and used else 0 for x in sliding]
    if types is not None and any(sliding) and not any(windows):
        stored.remark(
            "gives layer_types with a window and none that is used (sliding_window, use_sliding_window): its layer sees "
            "the whole text."
        )
    elif window and used and not any(windows):
        stored.remark(
            f"gives sliding_window = {window} and no layer that it holds for (layer_types, max_window_layers): its layer "
            "sees the whole text, as in vLLM and SGLang."
        )
    return windows


def decoder_layer(
    place: str, shape: Mapping[str, int], width: int, ours: str = "", **has: bool
) -> list[LayerMapping]:
    """The tensors of a decoder layer without the norms before its attention, which reads states of this `width`.

    ours: what our names begin with;  has: whether there are biases (`qkv`, `out`, `mlp`) and norms of queries and keys
    (`norms`)
    """
    d, d_ff = shape["d"], shape["d_ff"]
    head_dim = shape["head_dim"]
    q, kv = shape["n_heads"] * head_dim, shape["n_kv_heads"] * head_dim
    heads = {"q": q, "k": kv, "v": kv}
    layers = [
        LayerMapping(f"{ours}attention.{x}", f"{place}.self_attn.{x}_proj", (n, width), has.get("qkv", False))
        for x, n in heads.items()
    ]
    out = LayerMapping(f"{ours}attention.out", f"{place}.self_attn.o_proj", (d, q), has.get("out", False))
    ffn = {"gate": (d_ff, d), "up": (d_ff, d), "down": (d, d_ff)}
    layers += [
        out,
        *(
            LayerMapping(f"{ours}block.{x}", f"{place}.mlp.{x}_proj", size, has.get("mlp", False))
            for x, size in ffn.items()
        ),
    ]
    norms = [LayerMapping(f"{ours}block.norm", f"{place}.post_attention_layernorm", (d,), False)]
    if has.get("norms"):
        norms += [
            LayerMapping(f"{ours}attention.{x}_norm", f"{place}.self_attn.{x}_norm", (head_dim,), False)
            for x in "qk"
        ]
    return layers + norms


def set_rotation(head: Head, rope: Rope, windows: Sequence[int]) -> None:
    """Give all layers of the net its rotation, and each its window."""
    for part, window in zip([x for x in head.modules() if isinstance(x, RotaryPart)], windows, strict=True):
        part.rope, part.window = rope, window
