"""Heads as their authors publish them: which family a folder holds, and our net around its tensors.

A folder of ours gives its `kind` in config.json. Any other folder is searched for the weight files of the families below. A
family is a file here with one function: from the tensors, checked, to our net.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodescope.engine.core.spec import ModelSpec

from ...checkpoint.config import count_modules
from ...checkpoint.folder import LoadError, escape_unprintable, read_json
from ...checkpoint.keys import GENERATION, HARMLESS, Config, key_readings, unread_key_remarks
from ...checkpoint.weights import frequency_remarks, weight_files
from ..base import Head, RotaryPart
from .dflash import convert_dflash, convert_dspark, convert_speculators_dflash, convert_speculators_dspark
from .eagle import STEMS, convert_eagle, convert_speculators_eagle
from .eagle3 import (
    NORM_OUTPUT,
    SGLANG,
    convert_eagle3,
    convert_p_eagle,
    convert_speculators_eagle3,
    convert_speculators_p_eagle,
    named_mask_keys,
)
from .hydra import convert_hydra
from .medusa import convert_medusa
from .mtp import TRUNK, convert_mimo
from .published_folder import PublishedFolder, file_of, open_tensors
from .speculators import KEY, LAYER, READABLE, UNREADABLE, layer_table, unreadable_reason


@dataclass(frozen=True)
class PublishedFamily:
    """One authors' format.

    title: what a refusal calls such heads;  stems: names of the file of weights, without suffix
    convert: our net around the tensors; raises LoadError where they do not fit the target
    harmless: keys of its config.json that change no number of such heads, in addition to those of `keys.HARMLESS`
    """

    title: str
    stems: tuple[str, ...]
    convert: Callable[[PublishedFolder], Head]
    harmless: tuple[str, ...] = ()


SETTINGS = "norm_before_residual=true|false and layer_ids=inputs|outputs, modules of MiMo state=before_norm|after_norm"
# the same keys inside the table of the layers, which speculators writes out of the whole config of a model
AROUND = (
    *(f"{LAYER}.{x}" for x in HARMLESS),
    "speculators_config.proposal_methods",  # how long drafts are, which the drafter's knobs say
    "speculators_config.default_proposal_method",
)
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
    "eagle3": PublishedFamily("EAGLE-3 heads", STEMS, convert_eagle3),
    "p_eagle": PublishedFamily(
        "P-EAGLE heads", STEMS, convert_p_eagle, harmless=(NORM_OUTPUT, f"eagle_config.{NORM_OUTPUT}")
    ),  # nothing is fed back
    "eagle": PublishedFamily(
        "EAGLE heads", STEMS, convert_eagle, harmless=("tie_word_embeddings",)
    ),  # the target's unembedding serves
    "dflash": PublishedFamily("DFlash drafts", STEMS, convert_dflash),
    "dspark": PublishedFamily(
        "DSpark drafts", STEMS, convert_dspark, harmless=("num_anchors",)
    ),  # of training
}
# the same of modules that a model's own files hold
OWN_MODULES = PublishedFamily("modules for multi-token prediction", ("model",), convert_mimo, harmless=TRUNK)
# the same of the library speculators, whose config names the kind
SPECULATORS: dict[str, PublishedFamily] = {
    "eagle3": PublishedFamily(
        "EAGLE-3 heads",
        STEMS,
        convert_speculators_eagle3,
        harmless=(*AROUND, "tie_word_embeddings"),  # at the top, where the library's class sets it to false
    ),
    "p_eagle": PublishedFamily(
        "P-EAGLE heads",
        STEMS,
        convert_speculators_p_eagle,
        harmless=(*AROUND, "tie_word_embeddings", NORM_OUTPUT),
    ),
    "eagle": PublishedFamily(
        "EAGLE heads", STEMS, convert_speculators_eagle, harmless=(*AROUND, f"{LAYER}.tie_word_embeddings")
    ),
    "dflash": PublishedFamily(
        "DFlash drafts", STEMS, convert_speculators_dflash, harmless=(*AROUND, "tie_word_embeddings")
    ),
    "dspark": PublishedFamily(
        "DSpark drafts", STEMS, convert_speculators_dspark, harmless=(*AROUND, "tie_word_embeddings")
    ),
}
WRAPPED = ("eagle", "eagle3", "medusa", "mlp_speculator")  # a model_type of configs of vLLM's own layout


@dataclass(frozen=True)
class HeadLayout:
    """What a folder of published heads was recognised as. library: the project that writes this layout;  kind: of our heads"""

    library: str
    kind: str
    family: PublishedFamily


def published_kind(folder: Path) -> str | None:
    """The kind of the published heads in a folder; None: none that we know. Raises LoadError for those that cannot be read."""
    layout = find_layout(folder, read_json(folder, "config.json") or {})
    return None if layout is None else layout.kind


def find_layout(folder: Path, config: Mapping[str, Any]) -> HeadLayout | None:
    """The layout of a folder, by its config and the names of its files and tensors; None: none that we know.

    In this order: speculators says so itself; MiMo's models hold modules of their own; DFlash and DSpark show by a table or
    their architecture; an EAGLE-3 head shows by its architecture, its draft vocabulary or the name of its layer, and is
    P-EAGLE's if its config names a mask token; then the forms of EAGLE-1, Medusa and Hydra. Raises LoadError for what is
    recognised and cannot be read.
    """
    if KEY in config:
        reason = unreadable_reason(config[KEY])
        if reason is not None:
            raise LoadError(f"{folder} holds {escape_unprintable(reason)}.")
        kind = READABLE[str(config[KEY])]
        if file_of(folder, STEMS) is None:
            raise LoadError(f"{folder} has no {STEMS[0]}.safetensors; download it again.")
        return HeadLayout("speculators", kind, SPECULATORS[kind])
    if count_modules(config):
        return HeadLayout("XiaomiMiMo", "mtp", OWN_MODULES)
    architectures = config.get("architectures")
    named = [str(x) for x in architectures] if isinstance(architectures, list) else []
    block = _block_kind(config, named)
    if block in UNREADABLE:
        raise LoadError(f"{folder} holds {UNREADABLE[block]}.")
    if block is not None:
        if file_of(folder, STEMS) is None:
            raise LoadError(f"{folder} has no {STEMS[0]}.safetensors; download it again.")
        return HeadLayout("z-lab" if block == "dflash" else "DeepSpec", block, FAMILIES[block])
    fits = (kind for kind, x in FAMILIES.items() if file_of(folder, x.stems) is not None)
    kind = next(fits, "")
    if not kind:
        return None
    _refuse_part_of_layout(folder, config)
    if FAMILIES[kind].stems != STEMS:
        return HeadLayout("the authors", kind, FAMILIES[kind])
    if config.get("model_type") in WRAPPED:
        raise LoadError(
            f"{folder} is in the layout of vLLM (model_type = {config['model_type']} in its config.json), which cannot be "
            "read; give heads in the layout of their authors or of speculators."
        )
    third = config.get("draft_vocab_size") is not None or SGLANG in named or _has_midlayer(folder)
    kind = "eagle"
    if third:
        kind = "p_eagle" if named_mask_keys(config) else "eagle3"
    return HeadLayout("SGLang" if SGLANG in named else "the authors", kind, FAMILIES[kind])


def _block_kind(config: Mapping[str, Any], architectures: Sequence[str]) -> str | None:
    """The kind of a draft that fills a block in one pass, in its authors' layout; None: it is none."""
    named = " ".join(architectures).lower()
    kinds = (kind for kind in ("dflash2", "dspark", "dflash") if kind in named)
    return next(kinds, "dflash" if "dflash_config" in config else None)


def _has_midlayer(folder: Path) -> bool:
    """Whether the tensors in a folder are named as EAGLE-3's are; a pickle file is not opened for that."""
    path = file_of(folder, STEMS)
    if path is None or path.suffix != ".safetensors":
        return False
    with open_tensors(path) as tensors:
        return any(x.startswith("midlayer.") or ".hidden_norm." in x for x in tensors.shapes)


def _refuse_part_of_layout(folder: Path, config: Mapping[str, Any]) -> None:
    """Raises LoadError for a config of speculators without the key that names the kind of its head."""
    odd = next((x for x in (LAYER, "speculators_config") if x in config), None)
    if odd is not None:
        raise LoadError(
            f"{folder} gives {odd} in its config.json and no {KEY}, which says what kind of head it is; add it, or download it "
            "again."
        )


def read_published(
    folder: Path,
    config: dict[str, Any],
    spec: ModelSpec,
    wished: str,
    allow_pickle: bool = False,
    settings: Mapping[str, str] | None = None,
) -> tuple[Head, list[Path]]:
    """Our net of the kind `wished` around the heads in a folder, in float32 on the CPU. The files do not say which weights
    of the target the heads were trained with, only its shape. Heads for other weights cost speed, but change no text.
    settings: of its reference, behind the @.  -> the net, and its files of weights"""
    layout = find_layout(folder, config)
    if layout is None:
        names = ", ".join(f"{x.title} ({x.stems[0]}.safetensors)" for x in FAMILIES.values())
        raise LoadError(
            f"{folder} holds neither heads of ours (config.json says no kind) nor published ones: {names}."
        )
    kind, family = layout.kind, layout.family
    if kind != wished:
        raise LoadError(
            f"{folder} holds {family.title}, not heads of the kind {wished}; give it as {kind}={folder}."
        )
    if family is OWN_MODULES:
        paths = weight_files(folder)
    else:
        path = file_of(folder, family.stems)
        assert path is not None
        paths = [path]
    with open_tensors(*paths, allow_pickle=allow_pickle) as tensors:
        keys = Config(config)
        layer = layer_table(keys) if layout.library == "speculators" else keys
        stored = PublishedFolder(
            folder, family.title, keys, spec, tensors, layer=layer, settings=dict(settings or {})
        )
        head = family.convert(stored)
        stored.remark_target(keys.get("base_model_name_or_path"), "base_model_name_or_path")
        odd = frequency_remarks(
            tensors.frequencies, [x.rope for x in head.modules() if isinstance(x, RotaryPart)], str(folder)
        )
    if stored.unread_settings:
        raise LoadError(
            f"{folder} knows no setting {stored.unread_settings[0][:40]!r}; EAGLE-3 and P-EAGLE heads know {SETTINGS}."
        )
    then = "if they change the net, it drafts worse than its authors say"
    harmless = (*family.harmless, *GENERATION)  # which old configs repeat; a head chooses no text
    head.remarks = [*stored.remarks, *odd, *unread_key_remarks(stored.config, str(folder), then, harmless)]
    head.layout = layout.library
    head.readings = key_readings(stored.config, harmless)
    return head, paths
