"""From the words of a GGUF file to those of a checkpoint: a config.json, and the names of its tensors.

The words, and what is done to the tensors, are those of convert_hf_to_gguf.py in github.com/ggml-org/llama.cpp. Where a file
leaves a word out, llama.cpp's own default holds (src/llama-model.cpp).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from decodescope.engine.core.spec import Rope

from ...layers.rope import rope_frequencies
from ..config import FAMILIES
from ..folder import LoadError
from ..keys import Config, unread_key_remarks
from .header import EMBEDDING, GgufHeader, GgufTensor

# key of the metadata, behind the name of the architecture -> key of config.json
SIZES = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "context_length": "max_position_embeddings",
}
# change no number, or repeat what the tensors say
HARMLESS = (
    "vocab_size",
    "attention.value_length",
    "expert_count",
    "expert_used_count",
    "rope.dimension_count",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "tensor_data_layout",
)
WHOLE = {"token_embd": "embed_tokens", "output_norm": "norm"}
PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA_PARTS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
FREQUENCIES = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
FACTORS = (FREQUENCIES, LONG, SHORT)  # tensors with a divisor for each pair that is rotated
LAYER = re.compile(r"blk\.(\d{1,4})\.(\w+)\.(weight|bias)")
# of Llama 3.1 to 3.3; a file has only the factors that follow from these
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
MOST_FACTOR = 1 << 24
CLOSE = 1e-3  # relative error of a frequency; the factors are float32


@dataclass(frozen=True)
class GgufFamily:
    """What the converter makes of a family.

    model_type:  in config.json
    in_pairs:    the rows of q and k are reordered, so that the two features of a rotated pair are neighbours
    parts:       names of a layer's tensors that differ from PARTS
    fixed:       keys of config.json that no file says
    widest:      number of layers of the model whose scores are divided by the root of width / heads, not of the head's width
    pattern:     every how many layers one has no window; 0: windows are the same in all layers
    """

    model_type: str
    in_pairs: bool = False
    parts: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    widest: int = 0
    pattern: int = 0


# general.architecture -> family; a row more is a family more
ARCHITECTURES = {
    "llama": GgufFamily("llama", in_pairs=True),
    "qwen2": GgufFamily("qwen2"),
    "qwen3": GgufFamily("qwen3"),
    "smollm3": GgufFamily("smollm3", in_pairs=True, fixed={"no_rope_layer_interval": 4}),
    "phi3": GgufFamily("phi3", parts={"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}),
    "gemma2": GgufFamily("gemma2", parts=GEMMA_PARTS, widest=46, pattern=2),
    "gemma3": GgufFamily("gemma3_text", parts=GEMMA_PARTS, widest=62, pattern=6),
}
WITH_WINDOW = {
    "llama": "mistral"
}  # Mistral's files call themselves llama; the family with a window is another


def gguf_family(header: GgufHeader) -> GgufFamily:
    """The family of a model. Raises LoadError for one that is not known."""
    name = header.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise LoadError(
            f"{header.paths[0]} is of the architecture {str(name)[:40]!r}, which is not supported; choose one of {known}."
        )
    return ARCHITECTURES[name]


def tensor_name(family: GgufFamily, name: str) -> str:
    """The name that a checkpoint has for a tensor; the name itself where it has none."""
    if name == "output.weight":
        return "lm_head.weight"
    if (layer := LAYER.fullmatch(name)) is not None:
        number, part, kind = layer.groups()
        theirs = family.parts.get(part) or PARTS.get(part)
        return name if theirs is None else f"model.layers.{number}.{theirs}.{kind}"
    part, _, kind = name.partition(".")
    return f"model.{WHOLE[part]}.{kind}" if part in WHOLE and kind == "weight" else name


def checkpoint_tensors(header: GgufHeader) -> dict[str, GgufTensor]:
    """The tensors by the names that a checkpoint has for them, without the factors of the rotation. Raises LoadError."""
    family = gguf_family(header)
    return {tensor_name(family, name): one for name, one in header.tensors.items() if name not in FACTORS}


@dataclass(frozen=True)
class GgufConfig:
    """A config.json and a generation_config.json, and sentences about keys of the metadata that were not read."""

    config: dict[str, Any]
    generation: dict[str, Any]
    remarks: list[str]


def config_from_header(
    header: GgufHeader, name: str, factors: Mapping[str, torch.Tensor] | None = None
) -> GgufConfig:
    """The config of the model called `name`. factors: the numbers of those of the tensors FACTORS that it has, float [dim / 2].

    Raises LoadError for what cannot be expressed in one.
    """
    family = gguf_family(header)
    return _MetadataReader(header, name, family, factors or {}).config()


class _MetadataReader:
    """Reads the metadata of a model of a family."""

    def __init__(
        self, header: GgufHeader, name: str, family: GgufFamily, factors: Mapping[str, torch.Tensor]
    ):
        self._name = name
        self._family = family
        self._header = header
        self._factors = factors
        self._arch = f"{header.metadata['general.architecture']}."
        own = {k.removeprefix(self._arch): x for k, x in header.metadata.items() if k.startswith(self._arch)}
        self._keys = Config(own)

    def config(self) -> GgufConfig:
        """The files of a model's folder that say its shape."""
        self._refuse()
        keys, family = self._keys, self._family
        config: dict[str, Any] = {theirs: self._size(ours) for ours, theirs in SIZES.items()}
        layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
        config["num_key_value_heads"] = self._size("attention.head_count_kv", heads)
        config["rms_norm_eps"] = self._number("attention.layer_norm_rms_epsilon")
        dim = config["head_dim"] = self._size("attention.key_length", config["hidden_size"] // heads)
        if self._size("attention.value_length", dim) != dim:
            raise self._refusal("gives keys and values of different widths, which is not supported")
        model_type = family.model_type
        if "attention.sliding_window" in keys:
            model_type = WITH_WINDOW.get(model_type, model_type)
        known = FAMILIES[model_type]
        config |= {"model_type": model_type, "architectures": [known.architecture]}
        config["vocab_size"] = self._rows(EMBEDDING)
        config["tie_word_embeddings"] = "output.weight" not in self._header.tensors
        biases = {"attention_bias": "blk.0.attn_output.bias", "mlp_bias": "blk.0.ffn_down.bias"}
        config |= {key: biases[key] in self._header.tensors for key in known.biases}
        config |= self._windows(layers) | self._rotations(dim) | dict(family.fixed)
        if known.gemma:
            wide = layers == family.widest
            config["query_pre_attn_scalar"] = config["hidden_size"] // heads if wide else dim
            for key in ("attn_logit_softcapping", "final_logit_softcapping"):
                if key in keys:
                    config[key] = self._number(key) or None
        generation = self._tokens(config["vocab_size"])
        config |= {key: x for key, x in generation.items() if key != "eos_token_id"}
        then = "the text is computed all the same"
        remarks = unread_key_remarks(keys, self._name, then, HARMLESS, f"metadata ({self._arch[:-1]})")
        return GgufConfig(config, generation, remarks)

    def _refuse(self) -> None:
        """Raises LoadError for what no family has."""
        if self._keys.get("expert_count"):
            raise self._refusal("is a mixture of experts, which is not supported")
        if self._keys.get("attention.causal") is False:
            raise self._refusal("reads its text both ways, which is not supported in this format")

    def _refusal(self, what: str) -> LoadError:
        return LoadError(f"{self._name} {what}; choose another model.")

    def _size(self, key: str, otherwise: int | None = None) -> int:
        """A whole number; a list of one number for each layer counts where all are equal."""
        value = self._keys.get(key)
        if isinstance(value, list) and value and all(x == value[0] for x in value):
            value = value[0]
        value = otherwise if value is None else value
        if type(value) is not int or value < 1:
            said = "has no" if value is None else f"gives {str(value)[:40]} as"
            raise LoadError(
                f"{self._name} {said} {self._arch}{key} in its metadata; it must be a whole number from 1, so convert the "
                "model again."
            )
        return value

    def _number(self, key: str, otherwise: float | None = None) -> float:
        value = self._keys.get(key, otherwise)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            said = "has no" if value is None else f"gives {str(value)[:40]} as"
            raise LoadError(
                f"{self._name} {said} {self._arch}{key} in its metadata; it must be a number from 0, so convert the model "
                "again."
            )
        return float(value)

    def _rows(self, tensor: str) -> int:
        """How many rows a matrix has."""
        one = self._header.tensors.get(tensor)
        if one is None or len(one.shape) != 2:
            raise LoadError(f"{self._name} has no matrix {tensor}; convert the model again.")
        return one.shape[0]

    def _windows(self, layers: int) -> dict[str, Any]:
        """Sliding windows: in all layers, in those of a pattern, or in none."""
        window = self._keys.get("attention.sliding_window")
        width = self._size("attention.sliding_window") if window else None
        pattern = self._keys.get("attention.sliding_window_pattern", self._family.pattern)
        if not self._family.pattern:
            return {"sliding_window": width} if window is not None else {}
        if isinstance(pattern, list) and len(pattern) == layers:
            sliding = [bool(x) for x in pattern]
        elif type(pattern) is int and pattern > 0:
            sliding = [(i + 1) % pattern != 0 for i in range(layers)]
        else:
            raise self._refusal(
                f"gives {str(pattern)[:40]} as the pattern of its windows, which is not supported"
            )
        kinds = ["sliding_attention" if x and width else "full_attention" for x in sliding]
        return {"layer_types": kinds} | ({"sliding_window": width} if width else {})

    def _rotations(self, dim: int) -> dict[str, Any]:
        """The rotation of all layers, or of those with a window and of the others."""
        turned = self._size("rope.dimension_count", dim)
        theta = self._number("rope.freq_base", 10_000.0)
        table: dict[str, Any] = {"rope_theta": theta, **self._scaling(Rope(theta, turned))}
        if turned != dim:
            table["partial_rotary_factor"] = turned / dim
        known = FAMILIES[self._family.model_type]
        if known.local_theta is None:
            key = "original_max_position_embeddings"
            beside = {key: table[key]} if known.partial and key in table else {}
            return {"rope_parameters": table} | beside
        local = {"rope_type": "default", "rope_theta": self._number("rope.freq_base_swa", 10_000.0)}
        return {"rope_parameters": {"full_attention": table, "sliding_attention": local}}

    def _scaling(self, plain: Rope) -> dict[str, Any]:
        """How positions are scaled, in the words of config.json."""
        kind = self._keys.get("rope.scaling.type", "linear" if "rope.scale_linear" in self._keys else "none")
        factor = self._number("rope.scaling.factor", self._number("rope.scale_linear", 1.0)) or 1.0
        if self._factors:
            return self._factor_scaling(plain, str(kind), factor)
        if kind == "none" or (kind == "linear" and factor == 1):
            return {"rope_type": "default"}
        if kind == "linear":
            return {"rope_type": "linear", "factor": factor}
        odd = {"rope.scaling.yarn_ext_factor": 1.0, "rope.scaling.yarn_attn_factor": 1.0}
        if kind != "yarn" or any(self._number(key, usual) != usual for key, usual in odd.items()):
            raise self._refusal(
                f"scales its positions by {str(kind)[:40]!r} as no other model, which is not supported"
            )
        if self._number("rope.scaling.yarn_log_multiplier", 0.0):
            raise self._refusal("scales its positions by yarn with an mscale, which is not supported")
        amplitude = (0.1 * math.log(factor) + 1) * self._number("rope.scaling.attn_factor", 1.0)
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": self._size("rope.scaling.original_context_length"),
            "beta_fast": self._number("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": self._number("rope.scaling.yarn_beta_slow", 1.0),
            "attention_factor": amplitude,
        }

    def _factor_scaling(self, plain: Rope, kind: str, factor: float) -> dict[str, Any]:
        """The scaling whose divisors are tensors: Llama 3.1's where they follow from its constants, else longrope."""
        if kind not in ("none", "linear", "longrope"):
            raise self._refusal(
                f"scales its positions twice ({min(self._factors)} and {kind[:40]}), which is not supported"
            )
        tables = {name: self._pair_factors(name, plain.dim // 2) for name in self._factors}
        divided = tables.get(FREQUENCIES)
        if divided is not None and len(tables) == 1:
            if kind == "none" and (scaling := _llama3_scaling(plain, divided)) is not None:
                return scaling
            tables = {SHORT: divided, LONG: divided}
        if set(tables) != {SHORT, LONG}:
            raise self._refusal(
                f"has {' and '.join(sorted(tables))}, and factors of longrope are {LONG} and {SHORT}"
            )
        context = self._size("context_length")
        linear = factor if kind == "linear" else 1.0
        return {
            "rope_type": "longrope",
            "short_factor": (tables[SHORT] * linear).tolist(),
            "long_factor": (tables[LONG] * linear).tolist(),
            "original_max_position_embeddings": self._size("rope.scaling.original_context_length", context),
            "attention_factor": self._number("rope.scaling.attn_factor", 1.0) or 1.0,
        }

    def _pair_factors(self, name: str, pairs: int) -> torch.Tensor:
        """float64 [pairs]: the divisors of a tensor."""
        factors = torch.as_tensor(self._factors[name], dtype=torch.float64, device="cpu").flatten()
        if len(factors) != pairs or not bool(((factors > 0) & (factors < MOST_FACTOR)).all()):
            raise LoadError(
                f"{self._name} stores {len(factors)} numbers as {name}; they must be {pairs} positive ones, so download it "
                "again."
            )
        return factors

    def _tokens(self, vocab: int) -> dict[str, Any]:
        """The named ids that a generation_config.json has: where a text begins, where it ends, and what fills it up."""

        def token(name: str) -> int | None:
            value = self._header.metadata.get(f"tokenizer.ggml.{name}_token_id")
            return value if type(value) is int and 0 <= value < vocab else None

        ends = sorted({x for name in ("eos", "eot", "eom") if (x := token(name)) is not None})
        named = {"bos_token_id": token("bos"), "eos_token_id": ends or None, "pad_token_id": token("padding")}
        return {key: x for key, x in named.items() if x is not None}


def _llama3_scaling(plain: Rope, divided: torch.Tensor) -> dict[str, Any] | None:
    """The scaling of Llama 3.1 whose frequencies are those of `plain` divided by `divided`, float64 [dim / 2]; None: there is
    none. A file has the divisors alone."""
    inv = rope_frequencies(plain)
    if bool((divided == 1).all()):
        return {"rope_type": "default"}
    for table in _candidates(inv, divided):
        rope = Rope(
            plain.theta,
            plain.dim,
            "llama3",
            table["factor"],
            table["low_freq_factor"],
            table["high_freq_factor"],
            table["original_max_position_embeddings"],
        )
        if torch.allclose(rope_frequencies(rope), inv / divided, rtol=CLOSE, atol=0):
            return {"rope_type": "llama3", **table}
    return None


def _candidates(inv: torch.Tensor, divided: torch.Tensor) -> list[dict[str, Any]]:
    """Constants of Llama 3.1's scaling: those of its models, and those that follow from the frequencies between its bands.

    There 1 / divided = 1 / factor + blend (1 - 1 / factor). The blend, (original / wavelength - low) / (high - low), is a line
    over inv; low = 1 sets the unit.
    """
    factor = float(divided.max())
    tables: list[dict[str, Any]] = [{"factor": factor, **LLAMA3}]
    between = (divided > 1 + 1e-6) & (divided < factor * (1 - 1e-6))
    blend = (1 / divided[between] - 1 / factor) / (1 - 1 / factor)
    turns = inv[between] / (2 * math.pi)  # of a pair per position
    if len(turns) > 1:
        slope = float((blend[0] - blend[-1]) / (turns[0] - turns[-1]))
        low = float(slope * turns[0] - blend[0])
        if slope > 0 and low > 0:
            tables.append(_candidate(factor, 1.0, 1 + 1 / low, slope / low))
    elif len(turns) == 1:
        tables.append(_candidate(factor, 1.0, 4.0, float((1 + 3 * blend[0]) / turns[0])))
    return tables


def _candidate(factor: float, low: float, high: float, original: float) -> dict[str, Any]:
    values = (factor, low, round(high, 4), max(1, round(original)))
    return dict(zip(("factor", *LLAMA3), values, strict=True))
