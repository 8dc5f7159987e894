"""Preset choice: find the preset of a choice, and put a preset into a choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from decodescope.engine.session.method import Method

from .catalogue.presets import NONE, PRESETS, Preset
from .run_service import RunChoice


def find_matching_preset(choice: RunChoice) -> str | None:
    """The preset with the method that these settings make, if there is one."""
    try:
        method = Method.from_names(choice.names, choice.settings)
    except ValueError:
        return None
    return find_preset(method, choice.models)


def find_preset(method: Method | None, models: Mapping[str, str] = NONE) -> str | None:
    """The preset that makes this method, if there is one; of several, the one for these models (role -> name)."""
    same = [
        name
        for name, other in _preset_methods().items()
        if other == method and _fits_models(PRESETS[name], models)
    ]
    return max(same, key=lambda name: len(PRESETS[name].models), default=None)


def apply_preset(choice: RunChoice, name: str, begin: Mapping[str, str] = NONE) -> RunChoice:
    """The settings with the method of this preset, and with its models if it names any.
    begin: role -> model that a page begins with; models that another preset had brought are reset to those"""
    preset, models = PRESETS[name], dict(choice.models)
    if begin:
        brought = {
            role for x in PRESETS.values() if x.models and _fits_models(x, models) for role in x.models
        }
        models = {role: x for role, x in models.items() if role not in brought}
        models |= {role: begin[role] for role in brought if role in begin}
    return replace(choice, names=preset.names, settings=preset.settings, models={**models, **preset.models})


def _fits_models(preset: Preset, models: Mapping[str, str]) -> bool:
    """Whether these are the models that the preset is for."""
    return all(models.get(role) == name for role, name in preset.models.items())


@cache
def _preset_methods() -> dict[str, Method]:
    """preset -> its method, for comparison."""
    return {name: Method.from_names(x.names, x.settings) for name, x in PRESETS.items()}
