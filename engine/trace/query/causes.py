"""Causes: why the text of a run is not lossless. Its exactness (`engine/core/exactness.py`) is computed here and nowhere else,
from everything that touches the text: weights, guidance, constraints, context, cache, depth, rule, strategy, and what happened
to the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from decodescope.engine.core.exactness import VALUES, Exactness
from decodescope.engine.core.roles import TARGET

from ..records.events import Header
from ..records.parts import part_description

# the effect of a cache policy or KV compression on the text
CACHE_EFFECTS = {
    "evict": "entries leave the cache",
    "merge": "entries of the cache become one",
    "pack": "entries are stored in fewer bits",
    "select": "a pass does not read every entry",
}
LAYERS_LEFT_OUT = "layers are left out"


@dataclass(frozen=True)
class Causes:
    """Why a text is not lossless, each cause in a few words with the part that is responsible.

    lossy:    causes that may change the text whatever was asked for
    settings: what was asked for and makes the text another one than the original model's
    """

    lossy: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)

    @property
    def exactness(self) -> Exactness:
        """The value that these causes leave."""
        if self.lossy:
            return "lossy"
        if self.settings:
            return "exact_for_settings"
        return "lossless"


NO_CHANGES: Mapping[str, Any] = MappingProxyType({})


def causes_of_parts(
    method: Mapping[str, Any], words: Mapping[str, Mapping[str, Any]], model: Mapping[str, Any] = NO_CHANGES
) -> Causes:
    """The causes that the parts of a method name, and those of its target. method: kind -> record of the part; words: kind ->
    what it says of itself (`Method.said`); model: the changed `weights` and the `adapter` of the target, if it has them."""
    causes = Causes()
    for kind, record in method.items():
        part = words.get(kind, {})
        if why := _lossy_effect(kind, part):
            causes.lossy.append(f"{why} ({_part_name(record, kind)})")
        if why := str(part.get("departs", "")):
            causes.settings.append(why if kind == "sampler" else f"{why} ({_part_name(record, kind)})")
    if weights := model.get("weights"):
        causes.settings.append(f"the weights are changed ({str(weights)[:60]})")
    if adapter := model.get("adapter"):
        causes.settings.append(f"an adapter is merged into the weights ({str(adapter)[:60]})")
    return causes


def causes_of(header: Header) -> Causes:
    """The causes that the header of a run names: of its parts, of its models, and of the run itself."""
    causes = causes_of_parts(
        header.method, {kind: part_description(header, kind) for kind in header.method}, header.model
    )
    if header.forced:
        causes.lossy.append("verdicts were forced")
    if header.loaded is not None:
        causes.lossy.append(_loaded_cause(header.loaded))
    models = {TARGET: header.model, **header.lanes}
    sizes = {role: x.get("vocab") for role, x in models.items() if "shared_tokens" not in x}
    smallest = min((x for x in sizes.values() if type(x) is int), default=0)
    if smallest < (x if type(x := sizes[TARGET]) is int else 0):
        causes.lossy.append(f"the vocabulary is cut to {smallest:,} tokens, those of the smallest model")
    return causes


def causes_shown(header: Header) -> list[str]:
    """The causes behind the recorded value, at least one unless the text is lossless or nothing is known of it."""
    if header.exactness in ("lossless", "unknown"):
        return []
    causes = causes_of(header)
    known = causes.lossy if header.exactness == "lossy" else causes.settings
    if known:
        return known
    return [
        "another method decoded before the fork" if header.fork is not None else "the record names no cause"
    ]


def exactness_problem(header: Header) -> str:
    """The problem of the recorded value, if it claims more exactness than the causes in its header allow; empty: none."""
    if header.exactness == "unknown":
        return ""
    causes = causes_of(header)
    if VALUES.index(header.exactness) >= VALUES.index(causes.exactness):
        return ""
    why = "; ".join(causes.lossy or causes.settings)
    return f"its exactness is {header.exactness!r}, but {causes.exactness!r} follows from its parts: {why}"


def _lossy_effect(kind: str, part: Mapping[str, Any]) -> str:
    """The effect of a part that may change the text, in a few words; empty if it has none."""
    if "changes" in part:
        return str(part["changes"])
    effects = [CACHE_EFFECTS[x] for x in part.get("does", []) if x in CACHE_EFFECTS]
    return ", ".join(effects) or (
        LAYERS_LEFT_OUT if kind == "adaptive_depth" and not part.get("exact") else ""
    )


def _loaded_cause(loaded: Mapping[str, Any]) -> str:
    """How much of the prompt came from a saved cache, in words."""
    bits = loaded.get("bits")
    how = (
        f", in {bits:.3g} bits a number"
        if isinstance(bits, int | float) and not isinstance(bits, bool)
        else ""
    )
    return f"{loaded['entries']} entries of the prompt were loaded from a file{how}"


def _part_name(record: Any, kind: str) -> str:
    """The name of a part, in words."""
    return str(record.get("name", kind)).replace("_", " ") if isinstance(record, dict) else kind
