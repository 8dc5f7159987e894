"""What a folder of draft heads holds and how it is read, without its target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decodescope.engine.core.spec import ModelSpec

from ..checkpoint.config import spec_from_config
from ..checkpoint.folder import LoadError, member_file, read_json
from ..checkpoint.keys import Config
from .base import RotaryPart
from .drafting.draft_vocabulary import DEEP, DraftVocabularyHead
from .files import NETS, load_head, split_settings
from .published.families import find_layout
from .published.published_folder import UNKNOWN_TARGET, open_tensors
from .published.speculators import KEY, layer_table

MARKS = (
    "fc.",
    "fusion_fc.",
    "midlayer.",
    "medusa",
    "hydra",
)  # how names of heads' tensors begin, and no model's
TARGET_KEYS = (
    "verifier.name_or_path",
    "base_model_name_or_path",
)  # of configs, for the name of the head's target
USUAL = "the usual three (2, M / 2 and M - 3 of M layers)"


def is_head_folder(reference: Path) -> bool:
    """Whether a reference names a folder of draft heads, and not a model."""
    folder = split_settings(reference)[0]
    config = read_json(folder, "config.json") if folder.is_dir() else None
    if config is None:
        return False
    if KEY in config or "dflash_config" in config or config.get("kind") in NETS:
        return True
    if any(x.stem in ("medusa_lm_head", "hydra_lm_head") for x in folder.iterdir()):
        return True
    path = member_file(folder, "model.safetensors")
    if path is None:
        return False
    try:
        with open_tensors(path) as tensors:
            return any(x.startswith(MARKS) for x in tensors.shapes)
    except LoadError:
        return False


def head_kind(reference: Path) -> str:
    """The kind of the draft heads in a folder, by its config; nothing else is read. Raises LoadError for what holds none."""
    folder = split_settings(reference)[0]
    config = _read_config(folder)
    if "kind" in config:
        return str(config["kind"])
    layout = find_layout(folder, config)
    if layout is None:
        raise LoadError(f"{folder} holds no heads that are known; give the folder of trained heads.")
    return layout.kind


def _read_config(folder: Path) -> dict[str, Any]:
    config = read_json(folder, "config.json")
    if config is None:
        raise LoadError(f"{folder} has no config.json; give the folder of trained heads.")
    return config


def describe_heads(reference: Path, allow_pickle: bool = False) -> dict[str, Any]:
    """Name -> what a folder of draft heads holds and how it is read: its kind and layout, sizes, layers of the target, norms,
    windows, every key of its config with what was made of it, and the remarks. It is read for a target of the shape that the
    config names. Raises LoadError for what cannot be read."""
    folder = split_settings(reference)[0]
    config, kind = _read_config(folder), head_kind(reference)
    spec = _target_of_ours(config) if "kind" in config else _target_of_published(folder, config)
    head = load_head(reference, spec, kind, allow_pickle)
    facts: dict[str, Any] = {"path": str(folder), "kind": kind, "layout": head.layout or "decodescope"}
    facts |= {"numbers": sum(x.numel() for x in head.parameters()), "shape": head.shape}
    if isinstance(head, DraftVocabularyHead):
        places = list(head.layer_ids) if head.layer_ids else USUAL
        facts["target_layers"] = "none, the final feature" if head.shape.get("unfused") else places
    parts = [x for x in head.modules() if isinstance(x, RotaryPart)]
    if parts:
        rope = parts[0].rope
        facts["rotation"] = {
            "rule": rope.kind,
            "base": rope.theta,
            "features": rope.dim,
            "factor": rope.factor,
        }
        facts["windows"] = [x.window or None for x in parts]
    facts["embedding"] = (
        "the target's" if head.own_embed is None else "its own, compared with the target's when it is loaded"
    )
    facts["vocabulary"] = "the target's" if head.words is None else "its own"
    names = (x.value for x in head.readings if x.key.endswith(TARGET_KEYS))
    facts["made_for"] = head.made_for or next((x for x in names if x), None)
    facts["keys"] = [{"key": x.key, "value": x.value, "use": x.use} for x in head.readings]
    return facts | {"remarks": head.remarks}


def _target_of_ours(config: Mapping[str, Any]) -> ModelSpec:
    """A target of the shape that a config of ours asks for."""
    shape = config.get("shape")
    sizes = {x: y for x, y in shape.items() if type(y) is int and y > 0} if isinstance(shape, Mapping) else {}
    vocab = sizes.get("vocab", sizes.get("own_embed", 1))
    return ModelSpec(
        UNKNOWN_TARGET,
        max(DEEP, sizes.get("layer", 0) + 1),
        sizes.get("n_heads", 1),
        sizes.get("n_kv_heads", 1),
        sizes.get("head_dim", 2),
        sizes.get("d", 1),
        sizes.get("d_ff", 1),
        vocab,
    )


def _sizes_in_file(folder: Path) -> dict[str, int]:
    """Width and ids of Medusa's and Hydra's heads, whose configs do not give them; empty of others."""
    for name, block in (
        ("medusa_lm_head", "0.0.linear.weight"),
        ("hydra_lm_head", "hydra_mlp.0.0.linear.weight"),
    ):
        path = member_file(folder, f"{name}.safetensors")
        if path is None:
            continue
        with open_tensors(path) as tensors:
            rows = [x[0] for x in tensors.shapes.values() if x]
            if block in tensors.shapes:
                return {"hidden_size": tensors.shapes[block][0], "vocab_size": max(rows)}
    return {}


def _target_of_published(folder: Path, config: Mapping[str, Any]) -> ModelSpec:
    """A target of the shape that a published config names: its width, ids, heads and positions, and layers enough."""
    keys = Config(config)
    layer = layer_table(keys) if KEY in config else keys
    words = {"model_type": "llama", **layer.entries, "num_hidden_layers": 1000}
    words = {
        x: words.get(x)
        for x in ("hidden_size", "vocab_size", "num_attention_heads", "max_position_embeddings")
    }
    qwen = KEY in config and layer.entries.get("model_type", "qwen3") == "qwen3"
    silent = {"hidden_size": 4096, "vocab_size": 151_936 if qwen else 32_000, "num_attention_heads": 32}
    usable = {x: y for x, y in words.items() if type(y) is int and 0 < y < 1 << 24}
    silent |= _sizes_in_file(folder)
    shape: dict[str, Any] = {**silent, "intermediate_size": 1, "max_position_embeddings": 1, **usable}
    shape |= {"model_type": "llama", "num_hidden_layers": 1000, "num_key_value_heads": 1, "head_dim": 2}
    return spec_from_config(shape, UNKNOWN_TARGET)
