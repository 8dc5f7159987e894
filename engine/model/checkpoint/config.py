"""From a checkpoint's config.json to a ModelSpec: which families we know, and what each means by its words. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from decodescope.engine.core.spec import ModelSpec, Rope

from .folder import LoadError
from .keys import Config, unread_key_remarks
from .picture import read_picture

ROPE_KINDS = ("default", "linear", "llama3", "yarn", "longrope")
OLD_LONGROPE = ("su", "yarn")  # how configs of phi3 called longrope
LARGEST = 1 << 24  # of any size in a config; the largest vocabularies stay below 2^19
MOST_LAYERS = 1000
NO_PARD = -1  # how AMD's PARD writes that a model has learnt no mask token
# of models whose own files hold modules for multi-token prediction
MODULE_FAMILY = "mimo"
MODULE_COUNT = "num_nextn_predict_layers"
MOST_MODULES = 16
QUANTISED = ("quantization_config", "compression_config")


@dataclass(frozen=True)
class ModelFamily:
    """Default values of a family's config, and which of its words count.

    architecture: the class name in `architectures`; any other head on the same body is no language model
    gemma:        GeGLU, norms on both sides of a block, scaled embeddings, scores divided by another root than the head's
    local_theta:  base of the layers with a window, for a family with different rotations in its layers
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
    parts: bool = False  # the same of a layer outside a family, whose other words are the usual ones
    gemma: bool = False
    local_theta: float | None = None


FAMILIES = {
    "llama": ModelFamily("LlamaForCausalLM", biases=("attention_bias", "mlp_bias")),
    "smollm3": ModelFamily("SmolLM3ForCausalLM", theta=2e6, tied=True, biases=("attention_bias", "mlp_bias")),
    "mistral": ModelFamily("MistralForCausalLM"),
    "qwen2": ModelFamily("Qwen2ForCausalLM", qkv_bias=True),
    # Qwen 2, with modules that a draft head is made of
    MODULE_FAMILY: ModelFamily("MiMoForCausalLM", qkv_bias=True),
    "qwen3": ModelFamily("Qwen3ForCausalLM", head_dim=128, biases=("attention_bias",), qk_norm=True),
    "phi3": ModelFamily("Phi3ForCausalLM", eps=1e-5, partial=True),
    "gemma2": ModelFamily(
        "Gemma2ForCausalLM", tied=True, head_dim=256, biases=("attention_bias",), gemma=True
    ),
    "gemma3_text": ModelFamily(
        "Gemma3ForCausalLM",
        theta=1e6,
        tied=True,
        head_dim=256,
        biases=("attention_bias",),
        qk_norm=True,
        gemma=True,
        local_theta=1e4,
    ),
}


def spec_from_config(config: Mapping[str, Any], name: str) -> ModelSpec:
    """The shape of the model that `config` describes; LoadError for what we cannot run exactly."""
    config = config if isinstance(config, Config) else Config(config)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise LoadError(
            f"{name} is of the family {kind!r}, which is not supported; choose one of {', '.join(FAMILIES)}."
        )
    family = FAMILIES[kind]
    _refuse_unsupported(config, name, family)
    layers, heads, d = (
        _size(config, name, x) for x in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    if layers > MOST_LAYERS:
        raise LoadError(
            f"{name}: config.json gives {layers} layers, more than the limit of {MOST_LAYERS}; it is damaged."
        )
    kv = _size(config, name, "num_key_value_heads", heads)
    if heads % kv:
        raise LoadError(
            f"{name} has {heads} query heads, no multiple of its {kv} KV heads; its config.json is damaged."
        )
    head_dim = _size(config, name, "head_dim", family.head_dim or d // heads)
    rope, local_rope = _ropes(
        config, name, family, head_dim, _size(config, name, "max_position_embeddings", 2048)
    )
    positions = _positions(config, name, rope)
    if kind == MODULE_FAMILY:
        config.skip("attention_bias")  # as in Qwen 2 the code has these biases, whatever the config says
        for key in (MODULE_COUNT, "num_speculative_steps"):
            config.get(key)  # the head reads them
    attention = "attention_bias" in family.biases and _flag(config, name, "attention_bias")
    both_ways = _flag(config, name, "use_bidirectional_attention") or not _flag(
        config, name, "is_causal", True
    )
    windows, causal = _windows(config, name, kind, layers), not both_ways
    if windows and not causal:
        raise LoadError(
            f"{name} reads windows of its text both ways, which is not supported; choose another model."
        )
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
        rope=rope,
        local_rope=local_rope,
        norm_eps=_number(config, name, "rms_norm_eps", family.eps),
        tied=_flag(config, name, "tie_word_embeddings", family.tied),
        qkv_bias=family.qkv_bias or attention,
        out_bias=attention,
        mlp_bias="mlp_bias" in family.biases and _flag(config, name, "mlp_bias"),
        qk_norm=family.qk_norm,
        windows=windows,
        causal=causal,
        mask_token=_mask_token(config, name, "pard_token" if causal else "mask_token_id"),
        pad_token=_pad_token(config, name),
        picture=read_picture(config, name, _size(config, name, "vocab_size")),
        block_length=_block_length(config, name, positions, causal),
        no_rope=_no_rope_layers(config, name, layers) if kind == "smollm3" else frozenset(),
        **(_gemma_fields(config, name, family, d) if family.gemma else {}),
    )


def count_modules(config: Mapping[str, Any]) -> int:
    """How many modules for multi-token prediction a model's own files hold, by its config. Raises LoadError for a number that
    is none."""
    x = config.get(MODULE_COUNT) if config.get("model_type") == MODULE_FAMILY else None
    if x is not None and (type(x) is not int or not 0 <= x <= MOST_MODULES):
        raise LoadError(
            f"config.json gives {MODULE_COUNT} as {str(x)[:40]}; it must be a whole number up to {MOST_MODULES}."
        )
    return x or 0


def key_remarks(config: Mapping[str, Any], name: str) -> list[str]:
    """A sentence about the keys of a model's config.json that are neither used nor known to be harmless; none where there are
    no such keys. Raises what `spec_from_config` raises."""
    tracked = Config(config)
    spec_from_config(tracked, name)
    return unread_key_remarks(tracked, name, "the text is computed all the same")


def _positions(config: Mapping[str, Any], name: str, rope: Rope) -> int:
    """How many tokens the model reads. YaRN extends the original length by its factor: a config may give the extended length
    as max_position_embeddings, or leave the original one there, as the cards of Qwen 2.5 ask; vLLM multiplies too. Longrope has
    other factors for texts above the original length, which are not used."""
    written = _size(config, name, "max_position_embeddings", 2048)
    if rope.kind == "longrope":
        return min(written, rope.original_positions)
    if rope.kind != "yarn":
        return written
    extended = int(rope.original_positions * rope.factor)
    if extended > LARGEST:
        what = f"yarn with factor {rope.factor:g} over {rope.original_positions} positions"
        raise LoadError(
            f"{name}: config.json asks for {what}, more than the limit of {LARGEST} tokens; it is damaged."
        )
    return max(written, extended)


def length_remarks(config: Mapping[str, Any], spec: ModelSpec) -> list[str]:
    """Sentences about contradicting values in `config`, and how they were resolved."""
    written, rope = config.get("max_position_embeddings"), spec.rope
    if rope.kind == "longrope" and written is not None and written > spec.max_positions:
        what = f"config.json of {spec.name} gives max_position_embeddings {written} and other factors (long_factor) above"
        return [
            f"{what} {spec.max_positions} tokens, which are not used: the limit is {spec.max_positions} tokens."
        ]
    if rope.kind != "yarn" or written is None or written == int(rope.original_positions * rope.factor):
        return []
    says = f"config.json of {spec.name} gives max_position_embeddings {written}"
    extended = f"yarn with factor {rope.factor:g} over {rope.original_positions} positions makes"
    limit = f"the limit is {spec.max_positions} tokens"
    return [f"{says}, and {extended} {int(rope.original_positions * rope.factor)}: {limit}."]


def _gemma_fields(config: Mapping[str, Any], name: str, family: ModelFamily, d: int) -> dict[str, Any]:
    """The settings of Gemma 2 and 3 that the other families do not have."""
    third = family.qk_norm  # Gemma 3 norms queries and keys, and caps no score, whatever its config has
    return dict(
        act="gelu",
        post_norms=True,
        embed_scale=d**0.5,
        query_dim=_number(config, name, "query_pre_attn_scalar", 256),
        attn_cap=None if third else _soft_cap(config, name, "attn_logit_softcapping", 50.0),
        logit_cap=_soft_cap(config, name, "final_logit_softcapping", None if third else 30.0),
    )


def _block_length(config: Mapping[str, Any], name: str, positions: int, causal: bool) -> int:
    """Tokens of a block of a Block Transformer; 0 where the config names none."""
    if config.get("block_length") is None:
        return 0
    length = _size(config, name, "block_length")
    if length > positions or not causal:
        why = f"more than the {positions} tokens that it reads" if causal else "and no causal mask"
        raise LoadError(
            f"{name}: config.json gives block_length {length}, {why}; its config.json is damaged."
        )
    return length


def _pad_token(config: Mapping[str, Any], name: str) -> int | None:
    """The padding token, where there is one: configs write none as null, as -1, or not at all."""
    token = config.get("pad_token_id")
    return token if type(token) is int and 0 <= token < _size(config, name, "vocab_size") else None


def _mask_token(config: Mapping[str, Any], name: str, key: str) -> int | None:
    """The id of a token not yet written, which the config names as `key`; None if it names none. A model that reads both ways
    has learnt to fill it in, and a draft model of PARD (AMD-AGI/PARD, which writes -1 where there is none) to guess from it."""
    token, vocab = config.get(key), _size(config, name, "vocab_size")
    if token is None or (token == NO_PARD and key == "pard_token"):
        return None
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocab:
        raise LoadError(
            f"{name}: config.json gives {key} as {str(token)[:40]}; it must be an id below {vocab}."
        )
    return token


def _soft_cap(config: Mapping[str, Any], name: str, key: str, otherwise: float | None) -> float | None:
    """A soft cap; null means none, silence what the family does otherwise."""
    return None if config.get(key, otherwise) is None else _number(config, name, key, otherwise)


def _refuse_unsupported(config: Config, name: str, family: ModelFamily) -> None:
    given = config.get("architectures") or [family.architecture]
    if given != [family.architecture]:
        what = f"{name} is a {str(given)[:80]}, no {family.architecture} (architectures)"
        raise LoadError(f"{what}; choose a checkpoint of the language model.")
    if (key := quantisation_key(config)) is not None:
        raise LoadError(
            f"{name} is quantised ({key}), which is not supported; choose the original checkpoint in a float type."
        )
    if config.get("per_layer_config") is not None:
        raise LoadError(
            f"{name} gives each layer its own settings (per_layer_config), which is not supported; choose another."
        )
    word, known = ("hidden_activation", "gelu_pytorch_tanh") if family.gemma else ("hidden_act", "silu")
    act = config.get(word) or known
    if act != known:
        raise LoadError(
            f"{name} uses the activation {str(act)[:40]!r}; only {known!r} is supported, choose another model."
        )
    config.agree("hidden_act", known)  # Gemma's configs repeat theirs under the other word


def quantisation_key(config: Mapping[str, Any]) -> str | None:
    """The key of a config that marks its weights as quantised; None if there is none."""
    return next((x for x in QUANTISED if config.get(x) is not None), None)


def _size(config: Mapping[str, Any], name: str, key: str, otherwise: int | None = None) -> int:
    value = config.get(key)
    value = otherwise if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LARGEST:
        raise LoadError(
            f"{name}: config.json gives {key} as {str(value)[:40]}; it must be a whole number from 1 to {LARGEST}."
        )
    return value


def _flag(config: Mapping[str, Any], name: str, key: str, otherwise: bool = False) -> bool:
    value = config.get(key)
    value = otherwise if value is None else value
    if not isinstance(value, bool):
        raise LoadError(f"{name}: config.json gives {key} as {str(value)[:40]}; it must be true or false.")
    return value


def _number(config: Mapping[str, Any], name: str, key: str, otherwise: float | None = None) -> float:
    value = config.get(key)
    value = otherwise if value is None else value
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e12:
        raise LoadError(
            f"{name}: config.json gives {key} as {str(value)[:40]}; it must be a positive number."
        )
    return float(value)


def read_rope(
    config: Config, name: str, theta: float, head_dim: int, positions: int, partial: bool = False
) -> Rope:
    """The rotation of a single layer, such as a draft head's, in the words of a model's config; `theta` where it gives none.
    partial: a part of each head may be rotated."""
    rope = _rope(config, name, ModelFamily("", theta=theta, parts=partial), head_dim, positions)
    if rope.kind == "longrope" and rope.original_positions < positions:
        raise LoadError(
            f"{name} rotates by longrope with other factors above {rope.original_positions} tokens, and its model reads "
            f"{positions}, which is not supported (long_factor); choose another head."
        )
    return rope


def rope_table(rope: Rope, head_dim: int | None = None) -> dict[str, Any]:
    """The rotation as rope_parameters, of heads of this width (None: all of it is rotated); `read_rope` reads it back."""
    table: dict[str, Any] = {"rope_type": rope.kind, "rope_theta": rope.theta}
    if head_dim is not None and rope.dim != head_dim:
        table["partial_rotary_factor"] = rope.dim / head_dim
    if rope.kind == "default":
        return table
    table["factor"] = rope.factor
    if rope.kind == "linear":
        return table
    table["original_max_position_embeddings"] = rope.original_positions
    if rope.kind == "longrope":
        factors = list(rope.factors)
        return table | {
            "short_factor": factors,
            "long_factor": factors,
            "attention_factor": rope.amplitude,
        }
    if rope.kind == "llama3":
        return table | {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    more = {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow, "truncate": rope.whole}
    return table | more | {"attention_factor": rope.amplitude}


def _ropes(
    config: Config, name: str, family: ModelFamily, head_dim: int, positions: int
) -> tuple[Rope, Rope | None]:
    """The rotation, and the one of layers with a window where they have their own (Gemma 3: a table for each kind)."""
    if family.local_theta is None:
        return _rope(config, name, family, head_dim, positions), None
    tables = config.get("rope_parameters") or {}

    def one(kind: str, word: str, base: float, scaling: Any) -> Rope:
        said = (tables.get(kind) if isinstance(tables, Mapping) else tables) or {}
        if not isinstance(said, Mapping) or not isinstance(scaling, Mapping):
            raise LoadError(
                f"{name}: config.json gives the rotation of its {kind} as no table; it is damaged."
            )
        parameters = {"rope_theta": config.get(word), **said, **scaling}
        merged = Config({"rope_parameters": parameters}, f"{kind}.")
        config.join(merged)
        return _rope(merged, name, replace(family, theta=base), head_dim, positions)

    full = one("full_attention", "rope_theta", family.theta, config.get("rope_scaling") or {})
    return full, one("sliding_attention", "rope_local_base_freq", family.local_theta, {})


def _rope(config: Config, name: str, family: ModelFamily, head_dim: int, positions: int) -> Rope:
    """The rotation, from `rope_parameters` or the older `rope_theta` and `rope_scaling`."""
    place = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    said = config.get(place) or Config({})
    if not isinstance(said, Config) or said.has_tables:
        raise LoadError(
            f"{name} rotates its layers differently ({place}); only one rotation for all layers is supported."
        )
    kind = _rope_kind(said, name, family, place)
    words = {key: _rope_value(said, config, key) for key in ("partial_rotary_factor", "rope_theta")}
    said.agree("type", kind)
    if config.get("rope_scaling"):
        config.skip_repeats("rope_parameters", said)  # some files give both
    part = _number(words, name, "partial_rotary_factor", 1.0)
    if part != 1 and not (family.partial or family.parts):
        raise LoadError(
            f"{name} rotates {part:g} of each head (partial_rotary_factor); only phi3 is supported with a partial rotation."
        )
    dim = int(head_dim * part)
    if dim % 2 or not 0 < dim <= head_dim:
        raise LoadError(
            f"{name} rotates {dim} of the {head_dim} features of a head; it must be an even number of them."
        )
    theta = _number(words, name, "rope_theta", family.theta)
    # the pretrained length next to the table overrides the one inside: transformers reads it so
    key = "original_max_position_embeddings"
    if kind == "default":
        config.skip(*([key] if family.partial else []))  # Phi-3 has it for longrope alone
        return Rope(theta, dim)
    if kind == "longrope":
        if family.partial:
            original = _size(config, name, key, 4096)  # Phi-3's own; the one inside the table is overridden
        else:
            original = _size(config if config.get(key) is not None else said, name, key, positions)
        said.agree(key, original)
        return _longrope(said, name, Rope(theta, dim, kind, original_positions=original), positions)
    factor = _number(said, name, "factor")
    if kind == "linear":
        return Rope(theta, dim, kind, factor)
    original = _size(config if config.get(key) is not None else said, name, key, positions)
    said.agree(key, original)
    if kind == "yarn":
        return _yarn(said, name, Rope(theta, dim, kind, factor, original_positions=original))
    low, high = (_number(said, name, f"{x}_freq_factor") for x in ("low", "high"))
    if low >= high:
        raise LoadError(
            f"{name}: config.json gives low_freq_factor {low:g}, which must be below high_freq_factor {high:g}."
        )
    return Rope(theta, dim, kind, factor, low, high, original)


def _rope_kind(said: Config, name: str, family: ModelFamily, place: str) -> str:
    """The rule by which the table `said` scales positions, one of ROPE_KINDS."""
    kind = said.get("rope_type") if "rope_type" in said else said.get("type", "default")
    if family.partial and kind in OLD_LONGROPE:
        said.agree("type", kind)
        kind = "longrope"
    if kind not in ROPE_KINDS:
        raise LoadError(
            f"{name} scales its positions by the rule {str(kind)[:40]!r}, which is not supported ({place}); choose one "
            f"that scales by one of {', '.join(ROPE_KINDS)}."
        )
    return str(kind)


def _rope_value(said: Config, config: Config, key: str) -> Any:
    """The value of `key` in the rotation's own table, which overrides the same word next to it; None if both lack it."""
    value = said.get(key)
    if value is None:
        return config.get(key)
    config.agree(key, value)
    return value


def _longrope(said: Mapping[str, Any], name: str, rope: Rope, positions: int) -> Rope:
    """Longrope's factors for texts up to the original length, and how much sharper attention becomes. Where those for longer
    texts are the same, they hold at any length."""
    factors, others = (_factors(said, name, f"{x}_factor", rope.dim // 2) for x in ("short", "long"))
    original = rope.original_positions
    factor = _number(said, name, "factor", positions / original)
    usual = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0
    return replace(
        rope,
        factor=factor,
        factors=factors,
        original_positions=LARGEST if factors == others else original,
        amplitude=_number(said, name, "attention_factor", usual),
    )


def _factors(said: Mapping[str, Any], name: str, key: str, pairs: int) -> tuple[float, ...]:
    """A positive number for each feature pair."""
    values = said.get(key)
    numbers = isinstance(values, list) and all(type(x) in (int, float) and 0 < x < LARGEST for x in values)
    if not isinstance(values, list) or not numbers or len(values) != pairs:
        raise LoadError(
            f"{name}: config.json gives {key} of longrope as {str(values)[:40]}; it must be a list of {pairs} positive numbers."
        )
    return tuple(map(float, values))


def _yarn(said: Mapping[str, Any], name: str, rope: Rope) -> Rope:
    """YaRN's constants: which pairs are scaled, and how much sharper attention becomes."""
    if said.get("mscale") is not None or said.get("mscale_all_dim") is not None:
        raise LoadError(
            f"{name} scales its positions by yarn with an mscale, which is not supported; choose another model."
        )
    fast, slow = _number(said, name, "beta_fast", 32.0), _number(said, name, "beta_slow", 1.0)
    if rope.theta <= 1:
        raise LoadError(
            f"{name}: config.json gives rope_theta {rope.theta:g}, which must be above 1 for yarn."
        )
    if slow >= fast:
        raise LoadError(
            f"{name}: config.json gives beta_slow {slow:g}, which must be below beta_fast {fast:g}."
        )
    usual = 0.1 * math.log(rope.factor) + 1 if rope.factor > 1 else 1.0
    amplitude = _number(said, name, "attention_factor", usual)
    return replace(
        rope, beta_fast=fast, beta_slow=slow, whole=_flag(said, name, "truncate", True), amplitude=amplitude
    )


def _windows(config: Config, name: str, kind: str, layers: int) -> tuple[int | None, ...]:
    """Per layer the sliding window or None; an empty tuple where every layer sees everything."""
    if kind == "llama":
        config.agree("layer_types", ["full_attention"] * layers)
        return ()
    if kind in ("mistral", "phi3"):
        # a Mistral config without a value means 4096; null means none
        if config.get("sliding_window", 4096 if kind == "mistral" else None) is None:
            return ()
        return (_size(config, name, "sliding_window", 4096),) * layers
    if kind in ("gemma2", "gemma3_text"):
        every = 2 if kind == "gemma2" else _size(config, name, "sliding_window_pattern", 6)
        # transformers writes both
        config.skip(*(["_sliding_window_pattern"] if config.get("layer_types") else []))
        usual = ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(layers)]
        return _windows_by_type(
            config.get("layer_types") or usual, _size(config, name, "sliding_window", 4096), name, layers
        )
    if (
        not _flag(config, name, "use_sliding_window")
        or config.get("sliding_window", 4096 if kind != "smollm3" else None) is None
    ):
        config.skip("sliding_window", "max_window_layers")
        config.agree("layer_types", ["full_attention"] * layers)
        return ()
    window = _size(config, name, "sliding_window", 4096)
    types = config.get("layer_types")
    config.skip(*(["max_window_layers"] if types is not None else []))
    if types is None and kind == "smollm3":
        still = _no_rope_layers(config, name, layers)
        types = ["sliding_attention" if i in still else "full_attention" for i in range(layers)]
    elif types is None:
        first = config.get("max_window_layers", 28)
        if not isinstance(first, int):
            raise LoadError(
                f"{name}: config.json gives max_window_layers as {str(first)[:40]}; it must be a whole number."
            )
        types = ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
    return _windows_by_type(types, window, name, layers)


def _windows_by_type(types: Any, window: int, name: str, layers: int) -> tuple[int | None, ...]:
    known: dict[str, int | None] = {"sliding_attention": window, "full_attention": None}
    if (
        not isinstance(types, list)
        or len(types) != layers
        or not all(isinstance(x, str) and x in known for x in types)
    ):
        raise LoadError(f"{name}: layer_types must name {layers} layers, each one of {', '.join(known)}.")
    return tuple(known[x] for x in types) if "sliding_attention" in types else ()


def _no_rope_layers(config: Config, name: str, layers: int) -> frozenset[int]:
    """SmolLM3's layers without rotation. In its `no_rope_layers` a 1 marks a layer that DOES rotate."""
    rotates = config.get("no_rope_layers")
    config.skip(*(["no_rope_layer_interval"] if rotates is not None else []))
    if rotates is None:
        every = _size(config, name, "no_rope_layer_interval", 4)
        return frozenset(range(every - 1, layers, every))
    if not isinstance(rotates, list) or len(rotates) < layers or any(x not in (0, 1) for x in rotates):
        raise LoadError(f"{name}: no_rope_layers must hold a 0 or 1 for each of the {layers} layers.")
    return frozenset(i for i in range(layers) if not rotates[i])
