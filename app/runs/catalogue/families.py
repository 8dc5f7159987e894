"""Families: the groups of recorded runs, by the first part of a method that is not the default one.

Drafters are grouped by their folder. If all parts are default, the group is how the prompt was read, from a file or
in a batch, or whether the target was made from another model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from decodescope.engine.core.component import FOLDERS
from decodescope.engine.trace.records.events import Header
from decodescope.engine.trace.records.parts import part_description

METHODS = Path(__file__).resolve().parents[3] / "engine" / "methods"


@dataclass(frozen=True)
class MethodFamily:
    """A kind of method: its name, and a sentence on what it does."""

    title: str
    about: str


# kind of part -> its family, in the order in which a method's parts are examined
KINDS = {
    "strategy": MethodFamily(
        "Parallel decoding and search", "A step that is not draft and verify: a block that settles, or beams."
    ),
    "prompt_compression": MethodFamily(
        "Prompt compression", "Tokens of the prompt are left out before the target reads it."
    ),
    "policy": MethodFamily(
        "Cache policies", "Which keys and values stay in the cache, and what is lost with the others."
    ),
    "kv_compression": MethodFamily(
        "KV compression", "In how many bits keys and values are stored, and what is lost with the others."
    ),
    "adaptive_depth": MethodFamily("Adaptive depth", "A pass that runs some of the layers only."),
    "acceptance": MethodFamily(
        "Acceptance rules", "How much of a draft is kept, and whether the distribution stays the target's."
    ),
    "schedule": MethodFamily("Draft length", "How long a draft gets, step by step."),
    "drafter": MethodFamily("Other drafters", "Drafts that the target verifies in one pass."),
    "unmasking": MethodFamily("Unmasking", "Which places of a canvas are committed in a pass."),
    "router": MethodFamily("Routers", "Which of two models writes, by the token or by the answer."),
    "guidance": MethodFamily(
        "Guidance",
        "The model's next-token distribution is replaced before sampling; drafts are tested by the new one.",
    ),
    "sampler": MethodFamily("Sampling", "The distribution that a token is drawn from."),
}
# folder of drafters -> its family
ROOMS = {
    "drafters/draft_model": MethodFamily(
        "Draft models", "A smaller model drafts, and the target verifies it in one pass."
    ),
    "drafters/heads": MethodFamily(
        "Draft heads", "Small trained nets that draft from the target's own last state."
    ),
    "drafters/jacobi": MethodFamily(
        "Jacobi drafts", "Guesses are what the target's own passes made of earlier guesses."
    ),
    "drafters/lookup": MethodFamily(
        "Copied drafts", "Drafts copied from the prompt or from text seen before, with no model."
    ),
    "drafters/own_layers": MethodFamily(
        "Self-speculation", "The target drafts with some of its layers and verifies with all."
    ),
}
MADE = MethodFamily(
    "Models made of a model", "The target's weights are fewer, or in fewer bits; its text is another one."
)
LOADED = MethodFamily(
    "Loaded caches", "A prompt's keys and values come from a file, and no pass reads those tokens."
)
BATCH = MethodFamily(
    "Batches", "Many prompts decoded together: what they begin with is read once, or a pass serves all."
)
PLAIN = MethodFamily("Plain decoding", "One token a pass: what all others are held against.")


@cache
def drafter_folders() -> dict[str, str]:
    """Name of a drafter -> the folder of its file, as written in ROOMS."""
    home = METHODS / FOLDERS["drafter"]
    return {path.stem: f"{home.name}/{path.parent.name}" for path in home.rglob("*.py")}


def family(header: Header) -> MethodFamily:
    """The family of a recorded run."""
    for kind, family in KINDS.items():
        part = header.method.get(kind)
        if not isinstance(part, dict) or part_description(header, kind).get("usual"):
            continue
        return (
            ROOMS.get(drafter_folders().get(str(part.get("name")), ""), family)
            if kind == "drafter"
            else family
        )
    for of, read in ((LOADED, header.loaded), (BATCH, header.batch), (MADE, header.model.get("weights"))):
        if read:
            return of
    return PLAIN


def family_titles() -> list[str]:
    """The titles of all families in display order: drafts first."""
    kinds = (
        "drafter",
        "schedule",
        "acceptance",
        "prompt_compression",
        "policy",
        "kv_compression",
        "adaptive_depth",
        "strategy",
        "unmasking",
        "router",
    )
    return [
        x.title
        for x in (
            *ROOMS.values(),
            *(KINDS[kind] for kind in (*kinds, "guidance", "sampler")),
            MADE,
            LOADED,
            BATCH,
            PLAIN,
        )
    ]
