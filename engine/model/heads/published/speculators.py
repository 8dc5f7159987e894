"""The layout of vllm-project/speculators: which kinds of drafts it knows, and what its config says around the net."""

from __future__ import annotations

from typing import Any

from ...checkpoint.config import FAMILIES as MODEL_FAMILIES
from ...checkpoint.keys import Config
from .published_folder import UNKNOWN_TARGET, PublishedFolder

KEY = "speculators_model_type"
LAYER = "transformer_layer_config"
# speculators_model_type -> why such a draft cannot be read here, and what to do instead
UNREADABLE = {
    "dflash2": "a DFlash-2 draft, which fills a block of masks in one pass with local convolutions, and no drafter here does "
    "that; give an eagle3 head",
    "xpress": "an XPress draft, which fills a block of masks in one pass and refines it, and no drafter here does that; give "
    "an eagle3 head",
    "mtp": "the layer for multi-token prediction of a Qwen3-Next or Qwen 3.5 model, and no model of these families is loaded "
    "here; MiMo's models bring their own for the drafter mtp, for others give an eagle3 head",
    "mlp": "an MLP speculator with embeddings and vocabulary matrices of its own, and the net mlp_speculator here reads the "
    "target's; train one with decodescope train head mlp_speculator",
    "independent": "a draft model of its own and no head; give it as --draft FOLDER with --drafter draft_model",
}
READABLE = {
    "eagle": "eagle",
    "eagle3": "eagle3",
    "peagle": "p_eagle",
    "dflash": "dflash",
    "dspark": "dspark",
}  # speculators_model_type -> the kind of our heads


def unreadable_reason(kind: Any) -> str | None:
    """Why a draft of this speculators_model_type cannot be read, in words that follow "holds"; None if it can."""
    if str(kind) in READABLE:
        return None
    known = ", ".join((*READABLE, *UNREADABLE))
    return UNREADABLE.get(
        str(kind), f"a draft of the unknown type {str(kind)[:40]!r} ({KEY}); the known ones are {known}"
    )


def layer_table(config: Config) -> Config:
    """The table that describes the layers; empty where there is none, so that all is as in its class."""
    table = config.get(LAYER)
    return table if isinstance(table, Config) else Config({})


def read_speculators(stored: PublishedFolder) -> None:
    """Read what the config says about the head as a whole; remarks where it was made for another target."""
    kind = stored.config[KEY]
    if stored.config.get(LAYER) is not None:
        stored.table(LAYER)
    stored.expect({"model_type": ("llama",) if kind == "eagle" else ("llama", "qwen3")}, stored.layer)
    table = stored.table("speculators_config")
    stored.expect({"algorithm": (kind,)}, table)
    verifier = stored.table("verifier", table)
    stored.remark_target(verifier.get("name_or_path"), "verifier.name_or_path")
    spec = stored.spec
    family, architectures = MODEL_FAMILIES.get(spec.family), verifier.get("architectures")
    named = spec.name != UNKNOWN_TARGET
    if architectures and family is not None and named and architectures != [family.architecture]:
        stored.remark(
            f"says that its target is a {str(architectures)[:60]} (verifier.architectures), and {spec.name[:60]} is a "
            f"{family.architecture}: its guesses may be worse."
        )
