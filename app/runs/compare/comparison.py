"""Lineup: two to four methods that are to run on one prompt, as the page asks for them, and their start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from decodescope.app.basis.refusal import Refused

from ..catalogue.presets import GREEDY, PRESETS, WARMED, WARMTH, at
from ..preset_choice import taken
from ..recipe import from_json
from ..record_stream import Channel
from ..run_service import Choice, RunService

LETTERS = "ABCD"
FEWEST_RUNS, MOST_RUNS = 2, 4
SAMPLERS = ("", GREEDY, WARMED)  # of all methods: their own, or one of these
HOTTEST = 5.0


def choices_of(said: dict[str, Any]) -> list[Choice]:
    """The runs of a question: {"prompt", "seed", "new", "models": {role: model}, "methods": [preset or settings as text, ...],
    "sampler", "temperature", "chat", "ignore_eos"}; the last two are off where they are not there. Raises Refused."""
    methods = said.get("methods")
    sampler = said.get("sampler", "")
    warm = said.get("temperature", WARMTH)
    if not isinstance(methods, list) or not FEWEST_RUNS <= len(methods) <= MOST_RUNS:
        raise Refused(f"Choose {FEWEST_RUNS} to {MOST_RUNS} methods to run on one prompt.")
    for name, what in (("seed", "The seed"), ("new", "New tokens")):
        if (
            not isinstance(said.get(name), int)
            or isinstance(said[name], bool)
            or not 0 <= said[name] < 1 << 63
        ):
            raise Refused(f"{what} must be a whole number, 0 or more.")
    if sampler not in SAMPLERS:
        raise Refused(f"Sampling is one of: as each method has it, {', '.join(SAMPLERS[1:])}.")
    if isinstance(warm, bool) or not isinstance(warm, int | float) or not 0 < warm <= HOTTEST:
        raise Refused(f"The temperature must lie in (0, {HOTTEST:g}].")
    prompt = said.get("prompt", "")
    if not isinstance(prompt, str) or not all(isinstance(x, str) for x in methods):
        raise Refused("The prompt must be a text, and each method the name of a preset or settings as text.")
    common: dict[str, Any] = {"prompt": prompt, "seed": said["seed"], "max_new": said["new"]}
    common |= {"models": models_of(said), **_switches(said)}
    asked = [replace(_sampled(choice_of(text), sampler, float(warm)), **common) for text in methods]
    return [_with_models(choice, text) for choice, text in zip(asked, methods, strict=True)]


def _with_models(choice: Choice, text: str) -> Choice:
    """The same with the models of its preset, where that names some."""
    models = PRESETS[text].models if text in PRESETS else {}
    return replace(choice, models={**choice.models, **models}) if models else choice


def _switches(said: dict[str, Any]) -> dict[str, bool]:
    """What of a question is on or off."""
    switches = {name: said.get(name, False) for name in ("chat", "ignore_eos")}
    if not all(isinstance(x, bool) for x in switches.values()):
        raise Refused("The chat template and going on after the end token are true or false.")
    return switches


def models_of(said: dict[str, Any]) -> dict[str, str]:
    """The models of a question, role -> model: {"models": {"target": "lab", ...}}; none: those that a page begins with. Raises
    Refused."""
    models = said.get("models") or {}
    if not isinstance(models, dict) or not all(isinstance(x, str) for x in models.values()):
        raise Refused('The models are named by role: {"target": ..., "draft": ...}.')
    return models


def choice_of(text: str) -> Choice:
    """The method of a preset, or of settings as text. Raises Refused."""
    if text in PRESETS:
        return taken(Choice(""), text)
    if text.startswith("{"):
        return from_json(text)
    raise Refused(f"There is no preset {text[:40]!r} here: choose one of the list.")


def _sampled(choice: Choice, sampler: str, warm: float) -> Choice:
    """The same method with another sampler; "": with its own."""
    if not sampler:
        return choice
    own = choice.names.get("sampler", ())
    gone = {"sampler", *([own] if isinstance(own, str) else own)}
    settings = {part: knobs for part, knobs in choice.settings.items() if part not in gone}
    if sampler == WARMED:
        settings |= at(warm)
    return replace(choice, names={**choice.names, "sampler": [sampler]}, settings=settings)


def begin_all(play: RunService, asked: Sequence[Choice]) -> list[Channel]:
    """Queue runs one behind the other; raises Refused, and then none of them is queued."""
    composed = []
    for letter, choice in zip(LETTERS, asked, strict=False):
        composed.append(play.compose(choice))
        if composed[-1].why:
            raise Refused(f"Method {letter}: {composed[-1].why}")
    begun: list[Channel] = []
    try:
        for one in composed:
            begun += [play.start(one.choice, method=one.method)]
    except Refused:
        for channel in begun:
            play.act(channel, "stop")
        raise
    return begun
