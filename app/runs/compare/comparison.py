"""Comparison: parse the page's request to run two to four methods on one prompt, and start them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.engine.core.conversation import find_conversation
from decodescope.engine.trace.records.events import PROMPT_KINDS

from ..catalogue.presets import GREEDY, PRESETS, WARMED, WARMTH, temperature_settings
from ..preset_choice import apply_preset
from ..recipe import PLACE, from_json
from ..record_stream import RecordStream
from ..run_service import RunChoice, RunService

LETTERS = "ABCD"
FEWEST_RUNS, MOST_RUNS = 2, 4
SAMPLERS = ("", GREEDY, WARMED)  # samplers of all methods: their own, or one of these
HOTTEST = 5.0


def parse_choices(said: dict[str, Any]) -> list[RunChoice]:
    """Parse the runs of a question. Raises RequestRefusal.
    It is {"prompt", "seed", "new", "models": {role: model}, "methods": [preset or settings as text, ...], "sampler",
    "temperature", "chat", "ignore_eos", "prompt_kind"}; chat and ignore_eos are off if they are missing, and a prompt that
    holds messages is read as messages."""
    methods = said.get("methods")
    sampler = said.get("sampler", "")
    warm = said.get("temperature", WARMTH)
    if not isinstance(methods, list) or not FEWEST_RUNS <= len(methods) <= MOST_RUNS:
        raise RequestRefusal(f"Choose {FEWEST_RUNS} to {MOST_RUNS} methods to run on one prompt.")
    for name, what in (("seed", "The seed"), ("new", "New tokens")):
        if (
            not isinstance(said.get(name), int)
            or isinstance(said[name], bool)
            or not 0 <= said[name] < 1 << 63
        ):
            raise RequestRefusal(f"{what} must be a whole number, 0 or more.")
    if sampler not in SAMPLERS:
        raise RequestRefusal(f"Sampling is one of: as each method has it, {', '.join(SAMPLERS[1:])}.")
    if isinstance(warm, bool) or not isinstance(warm, int | float) or not 0 < warm <= HOTTEST:
        raise RequestRefusal(f"The temperature must lie in (0, {HOTTEST:g}].")
    prompt = said.get("prompt", "")
    if not isinstance(prompt, str) or not all(isinstance(x, str) for x in methods):
        raise RequestRefusal(
            "The prompt must be a text, and each method the name of a preset or settings as text."
        )
    common: dict[str, Any] = {"prompt": prompt, "seed": said["seed"], "max_new": said["new"]}
    kind = said.get("prompt_kind", "text")
    if kind not in PROMPT_KINDS:
        raise RequestRefusal(f"The kind of a prompt is one of {', '.join(PROMPT_KINDS)}.")
    common["prompt_kind"] = "messages" if kind == "text" and find_conversation(prompt) is not None else kind
    common |= {"models": parse_models(said), **parse_place(said), **_parse_switches(said)}
    asked = [
        replace(_replace_sampler(parse_choice(text), sampler, float(warm)), **common) for text in methods
    ]
    return [_add_preset_models(choice, text) for choice, text in zip(asked, methods, strict=True)]


def _add_preset_models(choice: RunChoice, text: str) -> RunChoice:
    """The same with the models of its preset, if it names any."""
    models = PRESETS[text].models if text in PRESETS else {}
    return replace(choice, models={**choice.models, **models}) if models else choice


def _parse_switches(said: dict[str, Any]) -> dict[str, bool]:
    """A switch of a question."""
    switches = {name: said.get(name, False) for name in ("chat", "ignore_eos")}
    if not all(isinstance(x, bool) for x in switches.values()):
        raise RequestRefusal("The chat template and going on after the end token are true or false.")
    return switches


def parse_models(said: dict[str, Any]) -> dict[str, str]:
    """The models of a question, role -> model: {"models": {"target": "lab", ...}}. Raises RequestRefusal.
    None means the models that a page begins with."""
    models = said.get("models") or {}
    if not isinstance(models, dict) or not all(isinstance(x, str) for x in models.values()):
        raise RequestRefusal('The models are named by role: {"target": ..., "draft": ...}.')
    return models


def parse_place(said: dict[str, Any]) -> dict[str, Any]:
    """The type and device of a question's models: {"place": {"dtype": ..., "device": ...}}, as fields of a choice.
    Raises RequestRefusal."""
    place = said.get("place") or {}
    if not isinstance(place, dict) or not all(isinstance(x, str) for x in place.values()):
        raise RequestRefusal(
            'The type and device of the models are given as "place": {"dtype": ..., "device": ...}.'
        )
    return {name: place.get(name, "") for name in PLACE}


def parse_choice(text: str) -> RunChoice:
    """The method of a preset, or of settings as text. Raises RequestRefusal."""
    if text in PRESETS:
        return apply_preset(RunChoice(""), text)
    if text.startswith("{"):
        return from_json(text)
    raise RequestRefusal(f"There is no preset {text[:40]!r} here: choose one of the list.")


def _replace_sampler(choice: RunChoice, sampler: str, warm: float) -> RunChoice:
    """The same method with another sampler; "": with its own."""
    if not sampler:
        return choice
    own = choice.names.get("sampler", ())
    gone = {"sampler", *([own] if isinstance(own, str) else own)}
    settings = {part: knobs for part, knobs in choice.settings.items() if part not in gone}
    if sampler == WARMED:
        settings |= temperature_settings(warm)
    return replace(choice, names={**choice.names, "sampler": [sampler]}, settings=settings)


def start_all(play: RunService, asked: Sequence[RunChoice]) -> list[RecordStream]:
    """Queue runs one after another; if it raises RequestRefusal, none of them is queued."""
    composed = []
    for letter, choice in zip(LETTERS, asked, strict=False):
        composed.append(play.compose(choice))
        if composed[-1].why:
            raise RequestRefusal(f"Method {letter}: {composed[-1].why}")
    begun: list[RecordStream] = []
    try:
        for one in composed:
            begun += [play.start(one.choice, method=one.method)]
    except RequestRefusal:
        for channel in begun:
            play.act(channel, "stop")
        raise
    return begun
