"""Families: what recorded runs are grouped by: the first part of a method that is not the usual one; drafters by their room.
Where all are usual, whether the target was made of another model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from decodescope.engine.core.component import FOLDERS
from decodescope.engine.trace.records.events import Header
from decodescope.engine.trace.records.parts import said

METHODS = Path(__file__).resolve().parents[3] / "engine" / "methods"


@dataclass(frozen=True)
class Family:
    """A kind of method: its name, and in a sentence what it does."""

    title: str
    about: str


# kind of part -> its family, in the order in which a method's parts are asked
KINDS = {
    "strategy": Family(
        "Parallel decoding and search", "A step that is not draft and verify: a block that settles, or beams."
    ),
    "context": Family("Shortened prompts", "Tokens of the prompt are left out before the target reads it."),
    "policy": Family(
        "Cache policies", "Which keys and values stay in the cache, and what is lost with the others."
    ),
    "codec": Family(
        "Packed caches", "In how many bits keys and values are stored, and what is lost with the others."
    ),
    "depth": Family("Early exit", "A pass that runs some of the layers only."),
    "acceptance": Family(
        "Acceptance rules", "How much of a draft is kept, and whether the distribution stays the target's."
    ),
    "schedule": Family("Draft length", "How long a draft gets, step by step."),
    "drafter": Family("Other drafters", "Drafts that the target verifies in one pass."),
    "selector": Family("Selectors", "Which places of a canvas are committed in a pass."),
    "router": Family("Routers", "Which of two models writes, by the token or by the answer."),
    "law": Family(
        "Laws", "Another distribution in the place of the target's, which all drafts are then tested by."
    ),
    "sampler": Family("Sampling", "The distribution that a token is drawn from."),
}
# room of drafters -> its family
ROOMS = {
    "drafters/draft_model": Family(
        "Draft models", "A smaller model drafts, and the target verifies it in one pass."
    ),
    "drafters/heads": Family(
        "Draft heads", "Small trained nets that draft from the target's own last state."
    ),
    "drafters/jacobi": Family(
        "Jacobi drafts", "Guesses are what the target's own passes made of earlier guesses."
    ),
    "drafters/lookup": Family(
        "Copied drafts", "Drafts copied from the prompt or from text seen before, with no model."
    ),
    "drafters/own_layers": Family(
        "Self-speculation", "The target drafts with some of its layers and verifies with all."
    ),
}
MADE = Family(
    "Models made of a model", "The target's weights are fewer, or in fewer bits; its text is another one."
)
PLAIN = Family("Plain decoding", "One token a pass: what all others are held against.")


@cache
def rooms() -> dict[str, str]:
    """Name of a drafter -> the room that its file lies in, as it stands in ROOMS."""
    home = METHODS / FOLDERS["drafter"]
    return {path.stem: f"{home.name}/{path.parent.name}" for path in home.rglob("*.py")}


def family(header: Header) -> Family:
    """The family of a recorded run."""
    for kind, family in KINDS.items():
        part = header.method.get(kind)
        if not isinstance(part, dict) or said(header, kind).get("usual"):
            continue
        return ROOMS.get(rooms().get(str(part.get("name")), ""), family) if kind == "drafter" else family
    return MADE if header.model.get("weights") else PLAIN


def order() -> list[str]:
    """The titles of all families, as a list of them is read: drafts first."""
    kinds = (
        "drafter",
        "schedule",
        "acceptance",
        "context",
        "policy",
        "codec",
        "depth",
        "strategy",
        "selector",
        "router",
    )
    return [
        x.title for x in (*ROOMS.values(), *(KINDS[kind] for kind in (*kinds, "law", "sampler")), MADE, PLAIN)
    ]
