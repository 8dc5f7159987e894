"""Heads as their authors publish them: which family a folder holds, and our net around its tensors.

A folder of ours gives its `kind` in config.json. Any other folder is searched for the weight files of the families below. A
family is a file here with one function: from the tensors, checked, to our net.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodescope.engine.core.spec import ModelSpec

from ...checkpoint.folder import LoadError, read_json
from ...checkpoint.keys import GENERATION, Config, unread_key_remarks
from ...checkpoint.weights import frequency_remarks
from ..base import Head, RotaryPart
from .eagle import STEMS, convert_eagle, convert_eagle3
from .hydra import convert_hydra
from .medusa import convert_medusa
from .published_folder import PublishedFolder, file_of, open_tensors


@dataclass(frozen=True)
class PublishedFamily:
    """One authors' format.

    title: what a refusal calls such heads;  stems: names of the file of weights, without suffix
    convert: our net around the tensors; raises LoadError where they do not fit the target
    says: an entry that config.json must have; empty: none
    harmless: keys of its config.json that change no number of such heads, in addition to those of `keys.HARMLESS`
    """

    title: str
    stems: tuple[str, ...]
    convert: Callable[[PublishedFolder], Head]
    says: str = ""
    harmless: tuple[str, ...] = ()


# the config's values for the target; such heads read its last states
TARGET = (
    "attention_bias",
    "head_dim",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "mlp_bias",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "tie_word_embeddings",
    "use_sliding_window",
)
# kind of our heads -> the authors' format of them. A family with a file name of its own comes before one without.
FAMILIES: dict[str, PublishedFamily] = {
    "medusa": PublishedFamily("Medusa heads", ("medusa_lm_head",), convert_medusa, harmless=TARGET),
    "hydra": PublishedFamily("Hydra heads", ("hydra_lm_head",), convert_hydra, harmless=TARGET),
    "eagle3": PublishedFamily("EAGLE-3 heads", STEMS, convert_eagle3, says="draft_vocab_size"),
    "eagle": PublishedFamily(
        "EAGLE heads", STEMS, convert_eagle, harmless=("tie_word_embeddings",)
    ),  # the target's unembedding serves
}
# library -> keys of its layout, in which heads cannot be read
LAYOUTS = {
    "speculators": ("speculators_model_type", "speculators_config", "transformer_layer_config"),
    "DFlash": ("dflash_config",),
}
WRAPPED = ("eagle", "eagle3", "medusa", "mlp_speculator")  # a model_type of configs of vLLM's own layout


def published_kind(folder: Path) -> str | None:
    """The kind of the published heads in a folder; None: none that we know."""
    config = read_json(folder, "config.json") or {}
    fits = (
        kind
        for kind, x in FAMILIES.items()
        if file_of(folder, x.stems) is not None and (not x.says or x.says in config)
    )
    return next(fits, None)


def _refuse_layout(folder: Path, config: dict[str, Any]) -> None:
    """Raises LoadError for the layouts of libraries that keep other nets or names in the same files."""
    layouts = [(who, key) for who, keys in LAYOUTS.items() for key in keys if key in config]
    own = any(file_of(folder, x.stems) is not None for x in FAMILIES.values() if x.stems != STEMS)
    if config.get("model_type") in WRAPPED and not own:
        layouts.append(("vLLM", f"model_type = {config['model_type']}"))
    if layouts:
        who, key = layouts[0]
        raise LoadError(
            f"{folder} is in the layout of the library {who} ({key} in its config.json), which cannot be read; give "
            "heads in the layout of their authors."
        )


def read_published(
    folder: Path, config: dict[str, Any], spec: ModelSpec, wished: str, allow_pickle: bool = False
) -> Head:
    """Our net of the kind `wished` around the heads in a folder, in float32 on the CPU. The files do not say which weights
    of the target the heads were trained with, only its shape. Heads for other weights cost speed, but change no text."""
    _refuse_layout(folder, config)
    kind = published_kind(folder)
    if kind is None:
        names = ", ".join(f"{x.title} ({x.stems[0]}.safetensors)" for x in FAMILIES.values())
        raise LoadError(
            f"{folder} holds neither heads of ours (config.json says no kind) nor published ones: {names}."
        )
    if kind != wished:
        raise LoadError(
            f"{folder} holds {FAMILIES[kind].title}, not heads of the kind {wished}; give it as {kind}={folder}."
        )
    path = file_of(folder, FAMILIES[kind].stems)
    assert path is not None
    with open_tensors(path, allow_pickle) as tensors:
        stored = PublishedFolder(folder, FAMILIES[kind].title, Config(config), spec, tensors)
        head = FAMILIES[kind].convert(stored)
        odd = frequency_remarks(
            tensors.frequencies, [x.rope for x in head.modules() if isinstance(x, RotaryPart)], str(folder)
        )
    then = "if they change the net, it drafts worse than its authors say"
    harmless = (*FAMILIES[kind].harmless, *GENERATION)  # which old configs repeat; a head chooses no text
    head.remarks = [*stored.remarks, *odd, *unread_key_remarks(stored.config, str(folder), then, harmless)]
    return head
