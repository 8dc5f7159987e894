"""From a checkpoint's config.json to a ModelSpec: which families we know, and what each means by its words. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .folder import LoadError
from .spec import ModelSpec, Rope

ROPE_KINDS = ("default", "linear", "llama3")
LARGEST = 1 << 24  # of any size in a config; the largest vocabularies stay below 2^19
MOST_LAYERS = 1000


@dataclass(frozen=True)
class Family:
    """What a family's config means where it is silent, and which of its words count.

    architecture: the class name in `architectures`; any other head on the same body is no language model
    """

    architecture: str
    theta: float = 10_000.0
    eps: float = 1e-6
    tied: bool = False
    head_dim: int | None = None
    qkv_bias: bool = False
    biases: tuple[str, ...] = ()  # which of attention_bias, mlp_bias the family reads
    qk_norm: bool = False
    partial: bool = False  # reads partial_rotary_factor


FAMILIES = {
    "llama": Family("LlamaForCausalLM", biases=("attention_bias", "mlp_bias")),
    "smollm3": Family("SmolLM3ForCausalLM", theta=2e6, tied=True, biases=("attention_bias", "mlp_bias")),
    "mistral": Family("MistralForCausalLM"),
    "qwen2": Family("Qwen2ForCausalLM", qkv_bias=True),
    "qwen3": Family("Qwen3ForCausalLM", head_dim=128, biases=("attention_bias",), qk_norm=True),
    "phi3": Family("Phi3ForCausalLM", eps=1e-5, partial=True),
}


def spec_from_config(config: Mapping[str, Any], name: str) -> ModelSpec:
    """The shape of the model that `config` describes; LoadError for what we cannot run exactly."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise LoadError(f"{name} is of the family {kind!r}, which is not supported; choose one of {', '.join(FAMILIES)}.")
    family = FAMILIES[kind]
    _refuse(config, name, family)
    layers, heads, d = (_size(config, name, x) for x in ("num_hidden_layers", "num_attention_heads", "hidden_size"))
    if layers > MOST_LAYERS:
        raise LoadError(f"{name}: config.json gives {layers} layers, more than the limit of {MOST_LAYERS}; it is damaged.")
    kv = _size(config, name, "num_key_value_heads", heads)
    if heads % kv:
        raise LoadError(f"{name} has {heads} query heads, no multiple of its {kv} KV heads; its config.json is damaged.")
    head_dim = _size(config, name, "head_dim", family.head_dim or d // heads)
    positions = _size(config, name, "max_position_embeddings", 2048)
    attention = bool(config.get("attention_bias")) and "attention_bias" in family.biases
    return ModelSpec(
        name,
        layers,
        heads,
        kv,
        head_dim,
        d,
        d_ff=_size(config, name, "intermediate_size"),
        vocab=_size(config, name, "vocab_size"),
        max_positions=positions,
        family=kind,
        rope=_rope(config, name, family, head_dim, positions),
        norm_eps=_number(config, name, "rms_norm_eps", family.eps),
        tied=bool(config.get("tie_word_embeddings", family.tied)),
        qkv_bias=family.qkv_bias or attention,
        out_bias=attention,
        mlp_bias=bool(config.get("mlp_bias")) and "mlp_bias" in family.biases,
        qk_norm=family.qk_norm,
        windows=_windows(config, name, kind, layers),
        no_rope=_no_rope(config, name, layers) if kind == "smollm3" else frozenset(),
    )


def _refuse(config: Mapping[str, Any], name: str, family: Family) -> None:
    made = config.get("architectures") or [family.architecture]
    if made != [family.architecture]:
        raise LoadError(f"{name} is a {str(made)[:80]}, no {family.architecture}; choose a checkpoint of the language model.")
    if config.get("quantization_config") is not None:
        raise LoadError(f"{name} is quantised, which is not supported; choose the original checkpoint in a float type.")
    act = config.get("hidden_act", "silu")
    if act != "silu":
        raise LoadError(f"{name} uses the activation {str(act)[:40]!r}; only 'silu' is supported, choose another model.")


def _size(config: Mapping[str, Any], name: str, key: str, otherwise: int | None = None) -> int:
    value = config.get(key)
    value = otherwise if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LARGEST:
        raise LoadError(f"{name}: config.json gives {key} as {str(value)[:40]}; it must be a whole number from 1 to {LARGEST}.")
    return value


def _number(config: Mapping[str, Any], name: str, key: str, otherwise: float | None = None) -> float:
    value = config.get(key)
    value = otherwise if value is None else value
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e12:
        raise LoadError(f"{name}: config.json gives {key} as {str(value)[:40]}; it must be a positive number.")
    return float(value)


def _rope(config: Mapping[str, Any], name: str, family: Family, head_dim: int, positions: int) -> Rope:
    """The rotation, from `rope_parameters` or the older `rope_theta` and `rope_scaling`."""
    said = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(said, Mapping) or any(isinstance(x, Mapping) for x in said.values()):
        raise LoadError(f"{name} rotates its layers differently; only one rotation for all layers is supported.")
    kind = said.get("rope_type", said.get("type", "default"))
    if kind not in ROPE_KINDS:
        raise LoadError(
            f"{name} scales its positions by the rule {str(kind)[:40]!r}, which is not supported; choose a model with one of "
            f"{', '.join(ROPE_KINDS)}."
        )
    # what stands inside the rotation's own table wins over the same word beside it
    words = {**{k: v for k, v in config.items() if v is not None}, **{k: v for k, v in said.items() if v is not None}}
    part = _number(words, name, "partial_rotary_factor", 1.0)
    if part != 1 and not family.partial:
        raise LoadError(f"{name} rotates {part:g} of each head; only phi3 is supported with a partial rotation.")
    dim = int(head_dim * part)
    if dim % 2 or not 0 < dim <= head_dim:
        raise LoadError(f"{name} rotates {dim} of the {head_dim} features of a head; it must be an even number of them.")
    theta = _number(words, name, "rope_theta", family.theta)
    if kind == "default":
        return Rope(theta, dim)
    factor = _number(said, name, "factor")
    if kind == "linear":
        return Rope(theta, dim, kind, factor)
    low, high = (_number(said, name, f"{x}_freq_factor") for x in ("low", "high"))
    if low >= high:
        raise LoadError(f"{name}: config.json gives low_freq_factor {low:g}, which must be below high_freq_factor {high:g}.")
    # the pretrained length beside the table wins over the one inside: transformers reads it so
    key = "original_max_position_embeddings"
    original = _size(config if config.get(key) is not None else said, name, key, positions)
    return Rope(theta, dim, kind, factor, low, high, original)


def _windows(config: Mapping[str, Any], name: str, kind: str, layers: int) -> tuple[int | None, ...]:
    """Per layer the sliding window or None; an empty tuple where every layer sees everything."""
    if kind == "llama":
        return ()
    if kind in ("mistral", "phi3"):
        # a Mistral config that says nothing means 4096; null means none
        if config.get("sliding_window", 4096 if kind == "mistral" else None) is None:
            return ()
        return (_size(config, name, "sliding_window", 4096),) * layers
    if not config.get("use_sliding_window") or config.get("sliding_window", 4096 if kind != "smollm3" else None) is None:
        return ()
    window = _size(config, name, "sliding_window", 4096)
    types = config.get("layer_types")
    if types is None and kind == "smollm3":
        still = _no_rope(config, name, layers)
        types = ["sliding_attention" if i in still else "full_attention" for i in range(layers)]
    elif types is None:
        first = config.get("max_window_layers", 28)
        types = ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
    known = {"sliding_attention": window, "full_attention": None}
    if not isinstance(types, list) or len(types) != layers or any(x not in known for x in types):
        raise LoadError(f"{name}: layer_types must name {layers} layers, each one of {', '.join(known)}.")
    return tuple(known[x] for x in types) if "sliding_attention" in types else ()


def _no_rope(config: Mapping[str, Any], name: str, layers: int) -> frozenset[int]:
    """SmolLM3's layers without rotation. In its `no_rope_layers` a 1 marks a layer that DOES rotate."""
    rotates = config.get("no_rope_layers")
    if rotates is None:
        every = _size(config, name, "no_rope_layer_interval", 4)
        return frozenset(range(every - 1, layers, every))
    if not isinstance(rotates, list) or len(rotates) < layers or any(x not in (0, 1) for x in rotates):
        raise LoadError(f"{name}: no_rope_layers must hold a 0 or 1 for each of the {layers} layers.")
    return frozenset(i for i in range(layers) if not rotates[i])
