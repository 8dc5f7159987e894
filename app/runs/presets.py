"""Presets: compositions with a name, to begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from decodescope.engine.method import Method

from .play import Choice


@dataclass(frozen=True)
class Preset:
    """A named composition. names, settings: as Method.named takes them."""

    title: str
    names: Mapping[str, str | Sequence[str]]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


GREEDY, WARMED = "greedy", "temperature"  # samplers that the page offers by themselves


def at(temperature: Any) -> dict[str, dict[str, Any]]:
    """The settings of sampling at this temperature."""
    return {WARMED: {"temperature": temperature}}


WARMTH = 0.8
WARM = at(WARMTH)
PRESETS: dict[str, Preset] = {
    "plain": Preset("Plain greedy", {"drafter": "none", "sampler": ["greedy"]}),
    "chain": Preset(
        "Draft model, chain", {"drafter": "draft_model", "sampler": ["greedy"]}, {"drafter": {"length": 5}}
    ),
    "tree": Preset(
        "Sampled draft tree",
        {"drafter": "draft_model", "sampler": ["temperature"]},
        {"drafter": {"length": 5, "width": 3}, **WARM},
    ),
    "online": Preset(
        "Draft model that learns",
        {"drafter": "online", "sampler": ["greedy"]},
    ),
    "pearl": Preset(
        "PEARL, two clocks",
        {"strategy": "pearl", "drafter": "draft_model", "sampler": ["greedy"]},
    ),
    "confidence": Preset(
        "Draft model, until unsure",
        {"drafter": "draft_model", "schedule": "confidence", "sampler": ["greedy"]},
    ),
    "block": Preset(
        "Block verification",
        {"drafter": "draft_model", "acceptance": "block", "sampler": ["temperature"]},
        {"drafter": {"length": 5}, **WARM},
    ),
    "spectr": Preset(
        "Four chains, SpecTr",
        {"drafter": "chains", "acceptance": "spectr", "sampler": ["temperature"]},
        WARM,
    ),
    "sequoia": Preset("Sequoia tree", {"drafter": "sequoia", "sampler": ["temperature"]}, WARM),
    "eagle": Preset("EAGLE-2, dynamic tree", {"drafter": "eagle2", "sampler": ["greedy"]}),
    "typical": Preset(
        "EAGLE-2, typical acceptance",
        {"drafter": "eagle2", "acceptance": "typical", "sampler": ["temperature"]},
        WARM,
    ),
    "kangaroo": Preset("Kangaroo", {"drafter": "kangaroo", "sampler": ["greedy"]}),
    "lookup": Preset("Prompt lookup", {"drafter": "prompt_lookup", "sampler": ["greedy"]}),
    "recycling": Preset("Token recycling", {"drafter": "token_recycling", "sampler": ["greedy"]}),
    "layers": Preset("Skipped layers", {"drafter": "layer_skip", "sampler": ["greedy"]}),
    "exit": Preset("Early exit drafts", {"drafter": "early_exit", "sampler": ["greedy"]}),
    "h2o": Preset(
        "H2O, 64 entries",
        {"drafter": "none", "policy": "h2o", "sampler": ["temperature"]},
        {"policy": {"heavy": 32, "recent": 32}, **WARM},
    ),
    "streaming": Preset(
        "StreamingLLM, 64",
        {"drafter": "none", "policy": "streaming_llm", "sampler": ["temperature"]},
        {"policy": {"recent": 60}, **WARM},
    ),
    "eagle_h2o": Preset(
        "EAGLE-2 + H2O, 25 %",
        {"drafter": "eagle2", "policy": "h2o", "sampler": ["greedy"]},
        {"policy": {"share": 0.25}},
    ),
    "lookup_streaming": Preset(
        "Lookup + sinks, 25 %",
        {"drafter": "prompt_lookup", "policy": "streaming_llm", "sampler": ["greedy"]},
        {"policy": {"share": 0.25}},
    ),
    "jacobi": Preset("Jacobi", {"strategy": "jacobi", "sampler": ["greedy"]}),
}
SMALLER = ("plain", "h2o", "streaming")  # those that hold less: no draft's tree, or a cache with a bound


def matching(choice: Choice) -> str | None:
    """The preset whose method these settings make, if there is one."""
    try:
        method = Method.named(choice.names, choice.settings)
    except ValueError:
        return None
    return preset_of(method)


def preset_of(method: Method | None) -> str | None:
    """The preset that makes this method, if there is one."""
    return next((name for name, other in _methods().items() if other == method), None)


@cache
def _methods() -> dict[str, Method]:
    """preset -> its method, to compare with."""
    return {name: Method.named(x.names, x.settings) for name, x in PRESETS.items()}
